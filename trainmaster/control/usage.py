"""What takes how much room in the store? One listing, sorted by job and part; code that several jobs have counts once."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.control.observe import Ports
from trainmaster.core import house
from trainmaster.core.house import JobUsage, Usage
from trainmaster.core.job import JobId
from trainmaster.ports.object_store import Entry
from trainmaster.spec import layout


async def usage(ports: Ports, only: Sequence[JobId], home: dict[str, int]) -> Usage:
    """Of every job, or of those named; the largest first."""
    links = {job.id: job for job in await ports.database.links()}
    prefixes = [layout.job(job_id) for job_id in only] or [layout.Key("")]
    entries = [entry for prefix in prefixes for entry in await ports.store.list_keys(prefix)]
    codes = {code: entry.size_bytes for entry in entries if (code := house.code_of(entry.key)) is not None}
    users: dict[str, int] = {}
    for job in links.values():
        if job.code.sha256 is not None:
            users[job.code.sha256] = users.get(job.code.sha256, 0) + 1
    if only:
        wanted = {links[job_id].code.sha256 for job_id in only if job_id in links} - {None}
        for entry in await ports.store.list_keys(layout.Key("code")) if wanted else ():
            code = house.code_of(entry.key)
            if code in wanted:
                codes[str(code)] = entry.size_bytes
    parts, elsewhere = _by_job(entries)
    for job_id in only or links:
        parts.setdefault(str(job_id), dict.fromkeys(house.PARTS, 0))
    found = [_job_usage(job_id, sizes, links.get(job_id), codes, users) for job_id, sizes in parts.items()]
    return Usage(
        jobs=tuple(sorted(found, key=lambda one: (-one.total, one.job))),
        shared_code=sum(size for code, size in codes.items() if users.get(code, 0) > 1),
        unused_code=sum(size for code, size in codes.items() if code not in users),
        elsewhere=elsewhere,
        store_total=sum(entry.size_bytes for entry in entries) if not only else 0,
        home=home,
    )


def _by_job(entries: Sequence[Entry]) -> tuple[dict[str, dict[str, int]], int]:
    """Bytes of each job by part, and of what is neither a job's nor code."""
    parts: dict[str, dict[str, int]] = {}
    elsewhere = 0
    for entry in entries:
        job_id = house.job_of(entry.key)
        if job_id is not None:
            sizes = parts.setdefault(job_id, dict.fromkeys(house.PARTS, 0))
            sizes[house.part_of(job_id, entry.key)] += entry.size_bytes
        elif house.code_of(entry.key) is None:
            elsewhere += entry.size_bytes
    return parts, elsewhere


def _job_usage(
    job_id: str, sizes: dict[str, int], links: house.JobLinks | None, codes: dict[str, int], users: dict[str, int]
) -> JobUsage:
    code = links.code.sha256 if links is not None else None
    size = codes.get(code, 0) if code is not None else 0
    is_shared = code is not None and users.get(code, 0) > 1
    total = sum(sizes.values()) + (0 if is_shared else size)
    return JobUsage(job=job_id, **sizes, code=size, is_code_shared=is_shared, is_known=links is not None, total=total)
