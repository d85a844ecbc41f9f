"""How does an attacked world go from its first job to its last word? Built, lived in, attacked, calmed, and judged."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trainmaster.adapters import host
from trainmaster.testing.chaos.attacks import Attacker
from trainmaster.testing.chaos.chronicle import Chronicle
from trainmaster.testing.chaos.draw import Mood, draw_jobs, draw_mood
from trainmaster.testing.chaos.gather import gather, promise_of
from trainmaster.testing.chaos.lookout import Lookout
from trainmaster.testing.chaos.processes import ProcessWatch, Role, control_groups, send
from trainmaster.testing.chaos.proxy import Proxy
from trainmaster.testing.chaos.scene import PREFIX, Scene, copied_package, may_mount
from trainmaster.testing.chaos.store_witness import StoreWitness
from trainmaster.testing.chaos.users import Users
from trainmaster.testing.checkers import Finding, check_world
from trainmaster.testing.s3_server import S3Server, s3_server
from trainmaster.testing.witness import World

#: With everybody well again, every job has ended and nothing of it is left after so long.
CONVERGE_S_MAX = 180.0
_LAST_LOOKS = 5
#: how long whoever is left is looked for, and how often nobody must be seen
_END_S_MAX = 10.0
_QUIET_LOOKS = 3


class ChaosOptions(Struct, frozen=True, kw_only=True):
    """What is to be done."""

    seed: int
    minutes: float
    #: default: as the seed draws it
    mood: Mood | None = None
    #: changes to a copy of Trainmaster: file → (old text, new text)
    changes: dict[str, tuple[str, str]] = {}


class ChaosReport(Struct, frozen=True, kw_only=True):
    """How it went."""

    seed: int
    mood: Mood
    minutes: float
    counts: Counter[str]
    jobs: int
    attempts: int
    findings: list[Finding]
    #: where everything was kept; None: nothing was wrong
    evidence: Path | None
    #: what could not be attacked here
    missing: list[str]
    #: somebody pressed Ctrl-C: nothing was judged
    is_interrupted: bool = False


class Stage:
    """One attacked world."""

    def __init__(self, options: ChaosOptions, folder: Path, server: S3Server, progress: Callable[[str], None]) -> None:
        self.options, self.server, self.progress = options, server, progress
        self.mood = options.mood or draw_mood(options.seed)
        self.chronicle = Chronicle()
        self.scene = Scene(folder / "world")
        self.watch = ProcessWatch(self.scene.mark, self.scene.home / "machines")
        self.lookout = Lookout(self.scene.home, self.watch, self.chronicle)
        witness = StoreWitness(f"/{server.bucket}/{PREFIX}/", self.chronicle.note, self.chronicle.zero_s)
        port, rng = int(server.endpoint.rpartition(":")[2]), random.Random(f"luck {options.seed}")
        self.proxy = Proxy(port, rng, self.chronicle.now_s, self.lookout.caller_of, witness.heard)
        self.attacker = Attacker(self.scene, self.watch, self.proxy, self.chronicle, rng)
        self.users = Users(self.scene, self.lookout, self.chronicle, rng, draw_jobs(options.seed))
        self._package = copied_package(folder / "package", options.changes)

    async def play(self) -> tuple[World, list[Finding]]:
        """From the first submission to the last machine; what is wrong."""
        asyncio.get_running_loop().set_exception_handler(self._broken)
        await self.proxy.start()
        self.scene.settle_in(self.server, self.proxy.port, self._package)
        looking = asyncio.ensure_future(self.lookout.watch())
        try:
            self.users.begin()
            self.attacker.begin(self.mood)
            await self._wait(self.options.minutes * 60.0)
            await self.users.leave()
            await self.attacker.calm()
            calm_at_s = self.chronicle.now_s()
            await self._converge(calm_at_s + CONVERGE_S_MAX)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self.users.end()
            await self.attacker.end()
            await self._end_processes()
            await self.proxy.stop()
            self.lookout.close()
        promise = promise_of(self.mood, calm_at_s, CONVERGE_S_MAX)
        world = await gather(self.scene, self.server, self.chronicle, self.watch, self.users.plans, promise)
        return world, [*self.chronicle.findings, *check_world(world)]

    async def _wait(self, for_s: float) -> None:
        until_s = self.chronicle.now_s() + for_s
        while (left_s := until_s - self.chronicle.now_s()) > 0:
            self._tell(f"{left_s:.0f} s of attacks left")
            await asyncio.sleep(min(1.0, left_s))

    def _tell(self, what: str) -> None:
        jobs = Counter(job.phase.value for job in self.lookout.records.values())
        phases = ", ".join(f"{count} {phase}" for phase, count in sorted(jobs.items()))
        self.progress(f"{what}; jobs: {phases or 'none'}; troubles: {sum(self._troubles().values())}")

    def _troubles(self) -> Counter[str]:
        return Counter({k: v for k, v in self.chronicle.counts.items() if k not in {"commands"}})

    async def _converge(self, deadline_s: float) -> None:
        """Everybody is well again: one command picks everything up, and everything ends."""
        for plan in self.users.plans.values():
            if plan.script.hangs_at is not None:
                await self.users.stop(plan)
        while self.lookout.unfinished and (left_s := deadline_s - self.chronicle.now_s()) > 0:
            self._tell(f"calm; {left_s:.0f} s left to end")
            waited = [job.id for job in self.lookout.unfinished]
            await self.users.command("wait", *waited, "--timeout", f"{min(10.0, left_s):g}")
            await asyncio.sleep(0.2)  # for the lookout to see it, too
        for job_id in sorted(self.lookout.records)[-_LAST_LOOKS:]:
            for verb in ("logs", "why", "show", "checkpoints"):
                end = await self.users.command(verb, job_id)
                if end.code != 0:
                    self.chronicle.wrong("commands_answer_when_all_is_well", f"{verb} {job_id} ended with {end.code}: {end.err}")
        await self.users.gone(max(1.0, deadline_s - self.chronicle.now_s()))
        while (self.watch.living(*Role) or self.lookout.machines) and self.chronicle.now_s() < deadline_s:
            self._tell("calm; waiting for the last process to leave")
            await asyncio.sleep(0.2)
        for name in self.lookout.machines:
            self.chronicle.wrong("everybody_leaves", f"the folder of {name} was not removed")
        for group in control_groups(self.lookout.records):
            self.chronicle.wrong("everybody_leaves", f"the control group {group.name} was not removed")
            host.end_cgroup(group)
        self.lookout.look()
        self.lookout.read_logs()

    async def _end_processes(self) -> None:
        """Nobody should be left. Whoever is, is told of and ended; those that it was just about to start, too."""
        deadline_s = self.chronicle.now_s() + _END_S_MAX
        quiet = 0
        while quiet < _QUIET_LOOKS and self.chronicle.now_s() < deadline_s:
            living = self.watch.look(self.chronicle.now_s())
            for seat in living:
                self.chronicle.wrong("everybody_leaves", f"{seat.role} {seat.pid} {seat.allocation} still lives at the end")
                send(seat, signal.SIGKILL)
            quiet = 0 if living else quiet + 1
            await asyncio.sleep(0.02)
        for group in control_groups(self.lookout.records):
            host.end_cgroup(group)

    def _broken(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.chronicle.wrong("chaos_itself", f"{context.get('message')}: {context.get('exception')!r}")


def run_chaos(options: ChaosOptions, progress: Callable[[str], None]) -> ChaosReport:
    """Live through an attacked world; the folder is kept when something is wrong. Ctrl-C ends it, and everything in it."""
    folder = Path(tempfile.mkdtemp(prefix="trainmaster-chaos-"))
    report = ChaosReport(
        seed=options.seed,
        mood=options.mood or draw_mood(options.seed),
        minutes=options.minutes,
        counts=Counter(),
        jobs=0,
        attempts=0,
        findings=[],
        evidence=None,
        missing=[],
        is_interrupted=True,
    )
    stages: list[Stage] = []
    try:
        with s3_server(folder / "s3") as server:
            stages.append(Stage(options, folder, server, progress))
            missing, world, findings = _played(stages[0], options.seed)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        return replace(report, **_seen_by(stages[0])) if stages else report
    if findings:
        _keep_evidence(folder, world, findings)
    else:
        shutil.rmtree(folder)
    return replace(
        report,
        **_seen_by(stages[0]),
        findings=findings,
        evidence=folder if findings else None,
        missing=missing,
        is_interrupted=False,
    )


def _played(stage: Stage, seed: int) -> tuple[list[str], World, list[Finding]]:
    """What could not be attacked, what was seen, and what is wrong."""
    missing: list[str] = []
    with contextlib.ExitStack() as stack:
        if stage.mood is Mood.HARSH and may_mount():
            whole_home = random.Random(f"disk {seed}").random() < 0.5
            stack.enter_context(stage.scene.small_disk(stage.scene.home if whole_home else stage.scene.home / "machines"))
        elif stage.mood is Mood.HARSH:
            missing.append("no disk was filled: only root may mount a small one")
        return missing, *asyncio.run(stage.play())


def _seen_by(stage: Stage) -> dict[str, Any]:
    records = stage.lookout.records.values()
    return {"counts": stage.chronicle.counts, "jobs": len(records), "attempts": sum(job.attempt for job in records)}


def _keep_evidence(folder: Path, world: World, findings: list[Finding]) -> None:
    lines = [msgspec.json.encode(event) for event in world.events]
    (folder / "events.jsonl").write_bytes(b"\n".join(lines))
    told = [f"{finding.checker}: {finding.sentence}" for finding in findings]
    for job_id, story in world.stories.items():
        told += ["", f"== {job_id}", *(f"{line.at:%H:%M:%S.%f} {line.event:<14} {line.sentence} {line.evidence}" for line in story)]
    (folder / "findings.txt").write_text("\n".join(told))
