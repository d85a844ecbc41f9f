"""`python -m trainmaster.testing.chaos`: how long, with which seed, and what came of it?"""

from __future__ import annotations

import argparse
import secrets
import sys

from trainmaster.testing.chaos.draw import Mood
from trainmaster.testing.chaos.stage import ChaosOptions, ChaosReport, run_chaos


def main() -> int:
    """Attack a world, print a table; 0 when every promise was kept, 130 when Ctrl-C ended it."""
    parser = argparse.ArgumentParser(prog="chaos", description="Attack a real world of jobs and check every promise.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long it is attacked")
    parser.add_argument("--seed", type=int, default=None, help="draws jobs and attacks; default: a new one")
    parser.add_argument("--mood", type=Mood, choices=list(Mood), default=None, help="how unkind; default: as the seed draws it")
    given = parser.parse_args()
    if given.minutes <= 0:
        parser.error(f"argument --minutes: more than 0, found {given.minutes:g}")
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    report = run_chaos(ChaosOptions(seed=seed, minutes=given.minutes, mood=given.mood), _progress)
    sys.stdout.write(render(report))
    if report.is_interrupted:
        return 130
    return 1 if report.findings else 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def render(report: ChaosReport) -> str:
    """The table, the findings and the last line."""
    rows = [
        ("minutes", f"{report.minutes:g}"),
        ("mood", report.mood.value),
        ("jobs", str(report.jobs)),
        ("attempts", str(report.attempts)),
        *((name, str(count)) for name, count in sorted(report.counts.items())),
        ("findings", str(len(report.findings))),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value:>8}" for name, value in rows]
    lines += [f"note: {text}" for text in report.missing]
    lines += [f"finding: {finding.checker}: {finding.sentence}" for finding in report.findings]
    if report.is_interrupted:
        return "\n".join(["", *lines, f"chaos seed {report.seed}: interrupted; nothing was judged", ""])
    verdict = "ok" if not report.findings else f"FAILED with {len(report.findings)} findings; kept in {report.evidence}"
    return "\n".join(["", *lines, f"chaos seed {report.seed}: {verdict}", ""])


if __name__ == "__main__":
    sys.exit(main())
