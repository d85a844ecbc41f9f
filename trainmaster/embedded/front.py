"""How do notebooks and scripts submit a job and wait for it?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from trainmaster.core.job import JobId, JobRecord
from trainmaster.embedded.opening import opened
from trainmaster.spec.job_spec import JobSpec

T = TypeVar("T")


def submit_job(spec: JobSpec | Mapping[str, object], folder: str | Path = ".") -> JobId:
    """For notebooks and scripts: submit a job with the code in `folder` and return its id; it runs in the background.

    The spec is a JobSpec or what a job file would hold, such as `{"command": "python train.py"}`. What is wrong with it, or can
    never run here, is a UserError.
    """

    from trainmaster.spec.parse import spec_from_mapping

    checked = spec if isinstance(spec, JobSpec) else spec_from_mapping(spec)
    source = Path(folder).absolute()

    async def inside() -> JobId:
        async with opened() as embedded:
            submission = await embedded.submit(replace(checked, source_dir=str(source)), source, os.environ, lambda *_: None)
            await embedded.ensure_driven()
            return submission.job.id

    return _run_here(inside())


def wait_for(job_id: str, timeout_s: float | None = None) -> JobRecord:
    """For notebooks and scripts: the record of a job that has finished; TimeoutError when it has not by then."""

    async def inside() -> JobRecord:
        async with opened() as embedded, asyncio.timeout(timeout_s):
            return await embedded.until_finished(await embedded.service.resolve(job_id))

    return _run_here(inside())


def _run_here(coroutine: Coroutine[object, object, T]) -> T:
    """Run to the end; in a thread of its own where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as aside:
        return aside.submit(asyncio.run, coroutine).result()
