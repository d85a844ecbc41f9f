"""What has been seen of this world so far? Events, counts for the table, and what is wrong already, by one clock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters.system_clock import SystemClock
from trainmaster.testing.chaos.processes import Lifetime, Role, Seat
from trainmaster.testing.checkers import Finding
from trainmaster.testing.witness import Event, MachineEnded, MachineMade, TrainingBegan, TrainingEnded, Trouble

#: how a script ends that is killed, as Python counts it
KILLED = -9


class Chronicle:
    """Everything that was noted, in order of time once it is asked for."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.zero_s = self._clock.now().timestamp()
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        self.findings: list[Finding] = []
        #: scripts that we killed while they worked: (allocation, pid) → when
        self.killed: dict[tuple[str, int], float] = {}

    def now_s(self) -> float:
        """Seconds since this world began."""
        return self._clock.now().timestamp() - self.zero_s

    def note(self, event: Event) -> None:
        """Something happened."""
        self.events.append(event)

    def trouble(self, kind: str, detail: str = "") -> None:
        """We were unkind."""
        self.counts[kind] += 1
        self.note(Trouble(self.now_s(), kind, detail))

    def wrong(self, checker: str, sentence: str) -> None:
        """A promise is seen to be broken already; the same words are noted once."""
        finding = Finding(checker, sentence)
        if finding not in self.findings:
            self.findings.append(finding)


class JournalLine(Struct, frozen=True, kw_only=True):
    """What a script wrote down."""

    at_s: float
    kind: str
    job: str
    attempt: int
    pid: int
    step: int = 0
    resumed: str = ""
    code: int | None = None

    @property
    def runner(self) -> str:
        """Tells this process of the script from others of the same attempt."""
        return f"{self.job}-a{self.attempt}:{self.pid}"


def read_journal(path: Path, zero_s: float) -> list[JournalLine]:
    """Every line, in the order they were written."""
    lines: list[JournalLine] = []
    for text in path.read_text().splitlines():
        fields = json.loads(text)
        lines.append(JournalLine(at_s=fields.pop("at") - zero_s, **fields))
    return lines


def training_events(
    journal: Iterable[JournalLine], lifetimes: Iterable[Lifetime], killed: dict[tuple[str, int], float]
) -> list[Event]:
    """When each script began and ended. One that did not say so ended when it was last seen alive: never later than it did."""
    events: list[Event] = []
    ended: set[str] = set()
    seen = {f"{life.seat.allocation}:{life.seat.pid}": life for life in lifetimes if life.seat.role is Role.SCRIPT}
    began: dict[str, JournalLine] = {}
    for line in journal:
        if line.kind == "began":
            began[line.runner] = line
            events.append(TrainingBegan(line.at_s, line.job, line.attempt, line.runner, line.resumed, line.step))
        elif line.kind == "ended":
            ended.add(line.runner)
            events.append(TrainingEnded(line.at_s, line.job, line.attempt, line.runner, line.code))
    for (allocation, pid), at_s in killed.items():
        if (runner := f"{allocation}:{pid}") not in ended:
            ended.add(runner)
            job_id, _, number = allocation.rpartition("-a")
            events.append(TrainingEnded(at_s, job_id, int(number), runner, KILLED))
    for runner in sorted(began.keys() - ended):
        life, line = seen.get(runner), began[runner]
        if life is None or life.is_over:
            at_s = max(line.at_s, life.last_s) if life is not None else line.at_s
            events.append(TrainingEnded(at_s, line.job, line.attempt, runner, None))
    return events


def machine_events(lifetimes: Iterable[Lifetime]) -> list[Event]:
    """A machine is here as long as its runner lives."""
    events: list[Event] = []
    for serial, life in enumerate(life for life in lifetimes if life.seat.role is Role.RUNNER):
        events.append(MachineMade(life.last_s if life.first_s is None else life.first_s, life.seat.allocation, serial))
        if life.is_over:
            events.append(MachineEnded(max(life.last_s, life.first_s or 0.0), life.seat.allocation, serial, "gone"))
    return events


def last_kind(path: Path, seat: Seat) -> str:
    """What a script that stands still wrote down last; empty: nothing yet."""
    marker = f'"pid": {seat.pid},'
    lines = [line for line in path.read_text().splitlines() if marker in line]
    fields = json.loads(lines[-1]) if lines else {}
    is_same = f"{fields.get('job')}-a{fields.get('attempt')}" == seat.allocation
    return str(fields["kind"]) if is_same else ""
