"""Runs in Trainmaster's environment: how long the submission of a study takes, `python our_study.py SCRIPT JOBS`."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from trainmaster.embedded import opened
from trainmaster.embedded.studies import submit_study
from trainmaster.spec.parse import spec_from_mapping


async def main(script, jobs):
    grid = {"a": list(range(jobs // 10)), "b": list(range(10))}
    async with opened() as embedded:
        spec = spec_from_mapping({"name": "trivial", "entry_point": script.name, "study": {"grid": grid}})
        began = time.perf_counter()
        await submit_study(embedded, spec, script.parent, os.environ, lambda *_: None)
        print(json.dumps({"submit_s": time.perf_counter() - began}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
