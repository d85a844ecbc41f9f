"""Runs in Trainmaster's environment: so many jobs submitted and driven by one process, `python our_library.py SCRIPT JOBS`."""

import asyncio
import os
import sys
from pathlib import Path

from trainmaster.embedded import opened
from trainmaster.spec.parse import spec_from_mapping


async def main(script, jobs):
    async with opened() as embedded:
        spec = spec_from_mapping({"name": "trivial", "entry_point": script.name})
        ids = [
            (await embedded.submit(spec, script.parent, os.environ, lambda *_: None)).job.id  # one snapshot each, as commands do
            for _ in range(jobs)
        ]
        waiting = list(ids)

        async def is_over():
            while waiting and (await embedded.service.get(waiting[0])).is_finished:
                waiting.pop(0)
            return not waiting

        await embedded.drive(is_over)
        outcomes = {str((await embedded.service.get(job_id)).outcome) for job_id in ids}
        if outcomes != {"succeeded"}:
            sys.exit(f"outcomes: {outcomes}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
