"""This machine as a provider: glue between the port, translate and client."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trainmaster.adapters import host
from trainmaster.adapters.providers.local.client import LocalClient
from trainmaster.adapters.providers.local.translate import FEATURES, sighting
from trainmaster.core.facts import Seen, Sighting
from trainmaster.core.job import AllocationName
from trainmaster.core.schedule import Capacity
from trainmaster.errors import NoCapacity, ProviderUnavailable
from trainmaster.ports.provider import INPUTS_BYTES_MAX, Capability, LaunchFile, LaunchRequest


class LocalProvider:
    """Each allocation is a runner process on this machine.

    Launching (5 ms on two busy cores, most of it starting the process) is done in the event loop: moved to a thread, it left the
    loop unserved for just as long. So is looking: 0.4 ms, and 1.5 ms among a hundred processes when a runner died and what it left
    is searched for. Releasing may take a second, and has a thread.
    """

    name = "local"
    capabilities = frozenset({Capability.CONFIRMS_GONE, Capability.IN_PLACE})
    features = FEATURES

    def __init__(
        self, folder: Path, environments: Path, slots: Capacity | None, *, inputs_bytes_max: int = INPUTS_BYTES_MAX
    ) -> None:
        self._client = LocalClient(folder)
        self._environments = environments
        self._slots = slots
        self._inputs_bytes_max = inputs_bytes_max

    async def capacity(self) -> Capacity:
        """CPUs, memory and GPUs of this machine, or what the configuration says."""
        if self._slots is None:
            self._slots = Capacity(cpus=host.cpu_count(), memory=host.memory_bytes(), gpus=host.gpu_indexes())
        return self._slots

    async def launch(self, request: LaunchRequest) -> None:
        """Start a runner; one that lives under this name already is left alone."""
        cgroup = host.make_cgroup(request.name)
        environ_file = str(self._environments / f"{request.environment_name}.json")
        launch = LaunchFile(
            request=request,
            environ_file=environ_file,
            shared=str(self._environments.parent),
            inputs_bytes_max=self._inputs_bytes_max,
            cgroup=str(cgroup or ""),
        )
        try:
            self._client.start(request.name, launch)
        except BlockingIOError as error:
            raise NoCapacity(f"this machine starts no more processes: {error}") from error
        except OSError as error:
            raise ProviderUnavailable(f"the runner could not be started: {error}", hint="is the disk full?") from error

    async def inspect(self, name: AllocationName) -> Sighting:
        """Whether the runner lives, by its lock."""
        try:
            return sighting(self._client.find(name))
        except OSError as error:
            return Sighting(seen=Seen.UNKNOWN, evidence=f"cannot look: {error}")

    async def nudge(self, name: AllocationName) -> None:
        """Wake the runner."""
        self._client.nudge(name)

    async def release(self, name: AllocationName) -> None:
        """End everything under this name."""
        if not await asyncio.to_thread(self._client.end, name):
            raise ProviderUnavailable(f"some process of {name} does not die")

    async def allocations(self) -> list[AllocationName]:
        """Everything with a folder."""
        try:
            return [AllocationName(name) for name in self._client.names()]
        except OSError as error:
            raise ProviderUnavailable(f"cannot look: {error}") from error

    async def wait_change(self, name: AllocationName) -> None:
        """Until the runner ends; where the kernel cannot tell, until it is seen to be gone."""
        await self._client.wait_end(name)
