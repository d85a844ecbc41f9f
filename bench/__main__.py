"""Which measurements are made, and where do their results go? `python -m bench [NAME...] [--write] [--quick] [--rounds N]`"""

import argparse
import os
import sys
from datetime import UTC, datetime

from bench import checkpoint, environment, help_cpu, inputs, log_volume, many_jobs, one_job, overhead, peers, search, study
from bench.scene import ROOT, BenchFailed, Scene, machine, scratch, tell
from bench.table import Row, as_markdown, as_text

MEASUREMENTS = {
    "help": help_cpu.measure,
    "submit": one_job.measure,
    "many": many_jobs.measure,
    "overhead": overhead.measure,
    "logs": log_volume.measure,
    "checkpoint": checkpoint.measure,
    "search": search.measure,
    "environment": environment.measure,
    "inputs": inputs.measure,
    "study": study.measure,
}
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """0 when everything could be measured, whatever the numbers say: they are for people to judge, not for tests."""
    options = _options()
    with scratch(options.scratch, quick=options.quick, rounds=options.rounds, cpu=options.cpu) as scene:
        facts = machine(scene.folder)
        facts["peers"] = ", ".join(f"{peer} {peers.version(peer) or 'not installed'}" for peer in peers.PEERS)
        rows: list[Row] = []
        broken = 0
        for name in options.names or MEASUREMENTS:
            found = _measured(name, scene)
            broken += found is None
            rows += found or []
        facts["load when it ended"] = f"{os.getloadavg()[0]:.1f}"
    for fact, value in facts.items():
        print(f"{fact}: {value}")
    print(f"\n{as_text(rows)}")
    if options.write and not broken:
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        PAGE.write_text(as_markdown(rows, facts, "python -m bench --write", date))
        print(f"written: {PAGE.relative_to(ROOT)}")
    return 1 if broken else 0


def _measured(name: str, scene: Scene) -> list[Row] | None:
    tell(f"{name}:")
    try:
        return MEASUREMENTS[name](scene)
    except BenchFailed as error:
        tell(f"{name} could not be measured: {error}")
        return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure; default: all of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md (everything has to be measured for that)")
    parser.add_argument("--quick", action="store_true", help="one small round of each: shows that it works, not how fast")
    parser.add_argument("--scratch", metavar="FOLDER", help="where to work; needs 20 GB on the disk to be measured")
    parser.add_argument("--rounds", type=int, metavar="N", help="so many rounds instead of each measurement's own number")
    parser.add_argument("--cpu", default="any", metavar="N", help="overhead: keep the script, bare and under us, to this CPU")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in MEASUREMENTS]:
        parser.error(f"there is no {unknown[0]}; measurements: {', '.join(MEASUREMENTS)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if options.cpu != "any" and not (options.cpu.isdigit() and int(options.cpu) in os.sched_getaffinity(0)):
        parser.error(f"--cpu must be one of {', '.join(map(str, sorted(os.sched_getaffinity(0))))}")
    if options.write and (options.names or options.quick or options.rounds):
        parser.error("--write needs everything measured in full: leave out the names, --quick and --rounds")
    return options


if __name__ == "__main__":
    sys.exit(main())
