"""Does the control plane keep its promises in these worlds? One told in full, many at once, or a hunt until stopped.

`make sim SEED=n` replays one world byte for byte, `make sim WORLDS=300` runs many, `make hunt` goes on from where it was left.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from trainmaster.testing.checkers import check_world
from trainmaster.testing.sim_net import BEGIN
from trainmaster.testing.sim_plan import WorldPlan
from trainmaster.testing.sim_world import Ran, run_world
from trainmaster.testing.witness import Beat, Event, Flushed, MachineMade, Recorded

_BATCH = 5
_HUNT_FILE = Path(".hunt.json")


class Tally(Struct):
    """What was seen in a number of worlds."""

    worlds: int = 0
    hours: float = 0.0
    jobs: int = 0
    attempts: int = 0
    machines: int = 0
    faults: dict[str, int] = {}
    #: seed → what was found there
    findings: dict[int, list[str]] = {}

    def add(self, other: Tally) -> None:
        """Count another one in."""
        self.worlds += other.worlds
        self.hours += other.hours
        self.jobs += other.jobs
        self.attempts += other.attempts
        self.machines += other.machines
        self.faults = dict(Counter(self.faults) + Counter(other.faults))
        self.findings = {**self.findings, **other.findings}


class Hunt(Struct):
    """What is kept between two hunts."""

    next_seed: int = 0
    tally: Tally = msgspec.field(default_factory=Tally)


def tally_seeds(seeds: Sequence[int]) -> Tally:
    """Live through some worlds; for a process of a pool."""
    tally = Tally()
    for seed in seeds:
        ran = run_world(seed)
        found = [f"{finding.checker}: {finding.sentence}" for finding in check_world(ran.world)]
        one = Tally(
            worlds=1,
            hours=ran.world.ended_at_s / 3600,
            jobs=len(ran.world.records),
            attempts=sum(job.attempt for job in ran.world.records.values()),
            machines=sum(isinstance(event, MachineMade) for event in ran.world.events),
            faults=dict(ran.counts),
            findings={seed: found} if found else {},
        )
        tally.add(one)
    return tally


def run_worlds(seeds: Sequence[int], processes: int) -> Iterator[Tally]:
    """Many worlds on several cores; a tally for each batch, in order."""
    batches = [seeds[start : start + _BATCH] for start in range(0, len(seeds), _BATCH)]
    with ProcessPoolExecutor(processes, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            yield from pool.map(tally_seeds, batches)
        except KeyboardInterrupt:
            sys.stderr.write("\nthe worlds under way are lived through to their end\n")
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def tell(ran: Ran) -> Iterator[str]:
    """One world as a text: what was drawn, what happened, each job's story."""
    yield from _tell_plan(ran.plan)
    yield "what happened"
    for event in ran.world.events:
        if not isinstance(event, Beat | Flushed):
            yield f"  {event.at_s:10.1f}  {_in_words(event)}"
    for job_id, lines in sorted(ran.world.stories.items()):
        yield f"story of {job_id}"
        for line in lines:
            yield f"  {(line.at - BEGIN).total_seconds():10.1f}  {line.event}: {line.sentence} [{line.rule}]"
    yield f"fingerprint {ran.fingerprint}"


def _tell_plan(plan: WorldPlan) -> Iterator[str]:
    yield f"world {plan.seed}: faults until {plan.calm_s / 3600:g} h, {plan.control_planes} control plane(s)"
    yield f"  timing {_set_fields(plan.timing)}"
    yield f"  fleet {_set_fields(plan.fleet)}"
    for name, luck in sorted(plan.luck.items()):
        yield f"  {name} {_set_fields(luck)}"
    for job in plan.jobs:
        stop = "" if job.stop_s is None else f", stop at {job.stop_s:.0f} s"
        yield f"  {job.job_id}: {_set_fields(job.script)}, submit at {job.submit_s:.0f} s{stop}, {_set_fields(job.spec.retry)}"


def _set_fields(value: Struct) -> str:
    """The fields that were drawn; what is absent is not worth a word."""
    return ", ".join(f"{name} {field}" for name, field in asdict(value).items() if field not in (0, 0.0, None, (), False))


def _in_words(event: Event) -> str:
    if isinstance(event, Recorded):
        job = event.job
        head = "" if job.head is None else f", head {job.head.id}"
        return f"record of {job.id}, revision {job.revision}: {job.phase.value}, attempt {job.attempt}{head}"
    fields = ", ".join(f"{name} {value}" for name, value in asdict(event).items() if name != "at_s" and value not in ("", None))
    return f"{type(event).__name__}: {fields}"


def table(tally: Tally) -> str:
    """What was seen, for people."""
    rows = [
        ("worlds", f"{tally.worlds:,}"),
        ("virtual hours", f"{tally.hours:,.0f}"),
        ("jobs", f"{tally.jobs:,}"),
        ("attempts", f"{tally.attempts:,}"),
        ("machines", f"{tally.machines:,}"),
        ("faults injected", f"{sum(tally.faults.values()):,}"),
        *((f"  {name}", f"{count:,}") for name, count in sorted(tally.faults.items())),
        ("worlds with findings", f"{len(tally.findings):,}"),
    ]
    return "\n".join(f"{name:34} {value:>14}" for name, value in rows)


def _one(seed: int) -> int:
    ran = run_world(seed)
    for line in tell(ran):
        _say(line)
    found = check_world(ran.world)
    for finding in found:
        _say(f"{finding.checker}: {finding.sentence}")
    _say(f"seed {seed}: " + (f"FAILED ({', '.join(sorted({f.checker for f in found}))})" if found else "ok"))
    return int(bool(found))


def _many(first: int, worlds: int, processes: int) -> int:
    total, began_s = Tally(), time.monotonic()
    for tally in run_worlds(range(first, first + worlds), processes):
        total.add(tally)
        _progress(total, worlds, began_s)
    _say(table(total))
    _tell_findings(total)
    _say(f"{total.worlds} worlds: " + ("ok" if not total.findings else f"FAILED in {len(total.findings)}"))
    return int(bool(total.findings))


def _hunt(processes: int) -> int:
    """On and on; what was seen is kept after each batch, so that it can be stopped at any moment and goes on later."""
    try:
        hunt = msgspec.json.decode(_HUNT_FILE.read_bytes(), type=Hunt) if _HUNT_FILE.exists() else Hunt()
    except msgspec.DecodeError as error:
        sys.stderr.write(f"{_HUNT_FILE} cannot be read ({error}); remove it to begin anew\n")
        return 2
    total, began_s = hunt.tally, time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            for tally in run_worlds(range(hunt.next_seed, hunt.next_seed + 20 * _BATCH), processes):
                hunt.next_seed += tally.worlds
                total.add(tally)
                for seed, found in tally.findings.items():
                    _say(f"seed {seed}: FAILED {found[0]}")
                _keep(hunt)
                _progress(total, 0, began_s)
    except KeyboardInterrupt:
        _say("")
    _say(table(total))
    _tell_findings(total)
    return int(bool(total.findings))


def _keep(hunt: Hunt) -> None:
    fresh = _HUNT_FILE.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(hunt))
    fresh.replace(_HUNT_FILE)


def _tell_findings(total: Tally) -> None:
    for seed, found in sorted(total.findings.items()):
        _say(f"seed {seed}: {found[0]}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""))
        _say(f"  make sim SEED={seed}")


def _progress(total: Tally, wanted: int, began_s: float) -> None:
    if sys.stderr.isatty():
        of = f" of {wanted}" if wanted else ""
        rate = total.hours / max(0.1, time.monotonic() - began_s)
        sys.stderr.write(f"\r{total.worlds}{of} worlds, {total.hours:.0f} h, {rate:.0f} h/s, {len(total.findings)} with findings ")
        sys.stderr.flush()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="sim", description="Live through simulated worlds and check every promise in them.")
    parser.add_argument("--seed", type=int, help="tell one world in full")
    parser.add_argument("--worlds", type=int, default=300, help="how many worlds to live through")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--hunt", action="store_true", help="go on until stopped, from where the last hunt ended")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    wanted = parser.parse_args(arguments)
    for name, least in (("worlds", 1), ("first", 0), ("processes", 1)):
        if getattr(wanted, name) < least:
            parser.error(f"argument --{name}: at least {least}, found {getattr(wanted, name)}")
    if wanted.seed is not None:
        return _one(wanted.seed)
    if wanted.hunt:
        return _hunt(wanted.processes)
    return _many(wanted.first, wanted.worlds, wanted.processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
