"""Which machines does nobody hold? Releases them, whoever forgot them."""

from __future__ import annotations

from trainmaster.control.observe import Ports
from trainmaster.core.job import AllocationName, Phase, parse_allocation_name
from trainmaster.errors import ProviderError


async def sweep(ports: Ports) -> list[AllocationName]:
    """Release every allocation that no unfinished job holds; what was released."""
    released: list[AllocationName] = []
    for provider in ports.providers.values():
        try:
            names = await provider.allocations()
            for name in names:
                if not await _is_held(name, ports):
                    await provider.release(name)
                    released.append(name)
        except ProviderError:
            continue  # no answer is no reason to act; the next sweep asks again
    return released


async def _is_held(name: AllocationName, ports: Ports) -> bool:
    parsed = parse_allocation_name(name)
    if parsed is None:
        return True  # not named by us: not ours to release
    job_id, attempt = parsed
    job = await ports.database.load(job_id)
    return job is not None and job.attempt == attempt and job.phase not in {Phase.QUEUED, Phase.FINISHED}
