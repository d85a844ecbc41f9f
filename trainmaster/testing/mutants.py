"""Would the simulation notice? Each planted bug is one line of ours made wrong; some world must find it, by the right checker.

`python -m trainmaster.testing.mutants` lists them; with a name it plants that one in this process alone, while the module is
loaded, and looks for a world that finds it. Nothing on disk changes. A mutant whose line is no longer there is an error.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from msgspec import Struct

WORLDS_MAX = 400


class Mutant(Struct, frozen=True, kw_only=True):
    """One wrong line."""

    name: str
    module: str
    old: str
    new: str
    #: the checker that must find it
    checker: str
    #: worlds known to find it; tried first
    seeds: tuple[int, ...] = ()


_DECIDE, _SUPERVISE, _RUNNER = "trainmaster.core.decide", "trainmaster.core.supervise", "trainmaster.testing.sim_runner"
MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="random-names",
        module="trainmaster.core.job",
        old='return AllocationName(f"{job_id}-a{attempt}")',
        new="return AllocationName(f\"{job_id}-a{attempt + 1000 * __import__('random').randrange(9)}\")",
        checker="outcome_is_the_exit_code",
        seeds=(3,),
    ),
    Mutant(
        name="perform-before-commit",
        module="trainmaster.control.placer",
        old="    decision = place(job, choice.placement, ports.clock.now())\n",
        new="    decision = place(job, choice.placement, ports.clock.now()); await __import__('trainmaster.control.reconciler',"
        " fromlist=['x']).perform(decision.instructions, decision.job, ports)\n",
        checker="committed_before_performed",
    ),
    Mutant(
        name="no-answer-is-gone",
        module="trainmaster.adapters.providers.simulated.provider",
        old="return Sighting(seen=Seen.UNKNOWN, evidence=str(error))",
        new="return Sighting(seen=Seen.GONE, evidence=str(error), was_launched=True)",
        checker="silence_restarts_nothing",
        seeds=(11,),
    ),
    Mutant(
        name="not-found-is-gone",
        module="trainmaster.adapters.providers.simulated.translate",
        old='seen=Seen.UNKNOWN, evidence="the fleet finds no such machine", not_found=True',
        new='seen=Seen.GONE, evidence="the fleet finds no such machine"',
        checker="the_living_are_left_alone",
        seeds=(95,),
    ),
    Mutant(
        name="one-old-heartbeat-is-silence",
        module=_DECIDE,
        old="(job.current.silent_s or 0.0) >= timing.lease_margin_s",
        new="True",
        checker="the_living_are_left_alone",
        seeds=(954,),
    ),
    Mutant(
        name="silence-is-gone",
        module=_DECIDE,
        old="    if facts.allocation.seen is Seen.GONE:\n        return facts.store_answers",
        new="    if facts.allocation.seen is Seen.GONE or (facts.heartbeat and now > facts.heartbeat.lease_until):\n"
        "        return facts.store_answers",
        checker="silence_restarts_nothing",
        seeds=(84,),
    ),
    Mutant(
        name="no-claim",
        module=_RUNNER,
        old="is_ours = await self.store.put_if_absent(key, mine) or await self.store.get(key) == mine",
        new="is_ours = await self.store.put_if_absent(key, mine) or True",
        checker="one_claimed_runner",
        seeds=(54,),
    ),
    Mutant(
        name="attempts-are-not-closed",
        module=_DECIDE,
        old="if _counts_as_gone(job, facts, now, timing) and cannot_go_on:",
        new="if _counts_as_gone(job, facts, now, timing):",
        checker="one_claimed_runner",
        seeds=(133,),
    ),
    Mutant(
        name="no-sweeper",
        module="trainmaster.control.work_queue",
        old="        if now >= self._sweep_at:\n",
        new="        if now < self._sweep_at - timedelta(days=9):\n",
        checker="no_machine_forgotten",
        seeds=(243,),
    ),
    Mutant(
        name="machines-without-a-limit",
        module="trainmaster.control.reconciler",
        old="machine_s_max=ports.timing.machine_s_max,",
        new="machine_s_max=9 * ports.timing.machine_s_max,",
        checker="no_machine_forgotten",
        seeds=(604,),
    ),
    Mutant(
        name="restore-the-newest",
        module="trainmaster.core.checkpoints",
        old="    return [resumes, *sorted(accepted,",
        new="    return [*sorted(commits, key=lambda c: c.committed_at, reverse=True), *sorted(accepted,",
        checker="resumes_from_the_head",
        seeds=(954,),
    ),
    Mutant(
        name="prune-takes-the-wrong-ones",
        module="trainmaster.core.checkpoints",
        old="gone = [k for k in keys if _name(job_id, k) not in stay",
        new="gone = [k for k in keys if _name(job_id, k) in stay",
        checker="checkpoints_never_lost",
    ),
    Mutant(
        name="no-second-look-at-the-folder",
        module=_RUNNER,
        old="            if self.folder.version != version:\n",
        new="            if self.folder.version < version:\n",
        checker="checkpoints_never_torn",
        seeds=(230,),
    ),
    Mutant(
        name="commits-of-anybody",
        module=_RUNNER,
        old="        self._unanswered = ref\n",
        new="        self._unanswered = ref; self.store.who.name += '?'\n",
        checker="commits_by_the_claimed_runner",
    ),
    Mutant(
        name="nothing-is-accepted",
        module=_DECIDE,
        old="[c for c in (attempt.head, facts.commit) if c is not None]",
        new="[c for c in (attempt.head, None) if c is not None]",
        checker="durable_work_is_accepted",
    ),
    Mutant(
        name="unseen-time-uses-up-the-limit",
        module=_DECIDE,
        old="    if limit_s is None or not is_heard or ledger",
        new="    if limit_s is None or ledger",
        checker="run_limits_hold",
        seeds=(26,),
    ),
    Mutant(
        name="a-new-limit-for-each-attempt",
        module=_DECIDE,
        old="left_s = None if limit_s is None else max(0.0, limit_s - ledger.running_s(job, now))",
        new="left_s = limit_s",
        checker="run_limits_hold",
        seeds=(38,),
    ),
    Mutant(
        name="a-runner-trusts-its-machines-clock",
        module=_RUNNER,
        old="        return self._began_at + timedelta(seconds=self.net.loop.seconds - self._began_s)\n",
        new="        return self.who.now()\n",
        checker="ledger_adds_up",
        seeds=(50,),
    ),
    Mutant(
        name="no-grace",
        module=_SUPERVISE,
        old="    kill_at = now + timedelta(seconds=event.grace_s)\n",
        new="    kill_at = now\n",
        checker="stops_have_their_grace",
        seeds=(4,),
    ),
    Mutant(
        name="each-order-begins-the-grace-anew",
        module=_SUPERVISE,
        old="kill_at=min(kill_at, run.kill_at or kill_at)",
        new="kill_at=max(kill_at, run.kill_at or kill_at)",
        checker="stops_have_their_grace",
        seeds=(24,),
    ),
    Mutant(
        name="an-order-without-its-grace",
        module=_DECIDE,
        old="        grace_s=grace_s,\n",
        new="        grace_s=0.0,\n",
        checker="stops_have_their_grace",
        seeds=(10,),
    ),
    Mutant(
        name="last-words-are-not-heard",
        module=_DECIDE,
        old="    if facts.exit is not None and facts.exit.stop_seen is not StopSeen.CLOSED:\n",
        new="    if facts.exit is not None and facts.exit.stop_seen is StopSeen.CLOSED:\n",
        checker="exit_codes_are_believed",
        seeds=(231,),
    ),
    Mutant(
        name="finished-is-not-final",
        module=_DECIDE,
        old="        return Decision(job=job, instructions=(*_release(job), Seal(job_id=job.id)))\n",
        new="        return Decision(job=replace(job, updated_at=now), instructions=(*_release(job), Seal(job_id=job.id)))\n",
        checker="finished_never_changes",
    ),
    Mutant(
        name="double-debit",
        module=_DECIDE,
        old="interruptions=job.interruptions + (charged is Budget.INTERRUPTIONS),",
        new="interruptions=job.interruptions + 2 * (charged is Budget.INTERRUPTIONS),",
        checker="everything_ends",
        seeds=(6,),
    ),
    Mutant(
        name="interruptions-cost-failures",
        module="trainmaster.core.retry",
        old="return _within_budget(job, ending, now, Budget.INTERRUPTIONS)",
        new="return _within_budget(job, ending, now, Budget.FAILURES)",
        checker="everything_ends",
    ),
    Mutant(
        name="preemptions-are-failures",
        module="trainmaster.core.endings",
        old='return Ending(kind=EndingKind.INTERRUPTED, reason=Reason(code="terminated"',
        new='return Ending(kind=EndingKind.FAILED, reason=Reason(code="terminated"',
        checker="budgets_hold",
        seeds=(4,),
    ),
    Mutant(
        name="submit-swallows-errors",
        module="trainmaster.control.service",
        old="        await self._ports.database.add(job, [submitted_line(job)], self._ports.clock.now())\n",
        new="        with __import__('contextlib').suppress(Exception):"
        " await self._ports.database.add(job, [submitted_line(job)], self._ports.clock.now())\n",
        checker="no_job_lost",
    ),
    Mutant(
        name="exit-3-is-success",
        module="trainmaster.core.endings",
        old="if report.code == 0 and report.signal is None:",
        new="if report.code in {0, 3} and report.signal is None:",
        checker="exit_codes_are_believed",
    ),
    Mutant(
        name="crashes-are-not-retried",
        module="trainmaster.core.retry",
        old="    if spent >= allowed:\n",
        new="    if spent >= allowed or budget is Budget.FAILURES:\n",
        checker="outcome_is_the_exit_code",
        seeds=(39,),
    ),
    Mutant(
        name="one-chunk-for-all",
        module=_RUNNER,
        old='self._chunk, self._pending_chunk = self._chunk + 1, b""',
        new='self._chunk, self._pending_chunk = self._chunk, b""',
        checker="logs_stay_readable",
    ),
    Mutant(
        name="ledger-forgets-the-end",
        module="trainmaster.core.ledger",
        old='    cut.to("uploading", line.uploaded_at or last_sign)\n    cut.to("idle", None)\n',
        new="    cut.cursor = cut.end\n",
        checker="ledger_adds_up",
    ),
    Mutant(
        name="unheard-time-is-training",
        module="trainmaster.core.ledger",
        old="last_sign = line.uploaded_at or line.last_seen_at if over else None",
        new="last_sign = line.uploaded_at if over else None",
        checker="ledger_adds_up",
        seeds=(12,),
    ),
    Mutant(
        name="placed-when-submitted",
        module=_DECIDE,
        old="waiting_since=job.waiting_since, placed_at=now,",
        new="waiting_since=job.waiting_since, placed_at=job.waiting_since,",
        checker="ledger_adds_up",
        seeds=(74,),
    ),
    Mutant(
        name="a-failed-step-is-never-tried-again",
        module="trainmaster.control.work_queue",
        old="wake_at = now + timedelta(seconds=backoff_s(0.5, 30.0, times))",
        new="wake_at = None",
        checker="everything_ends",
    ),
    Mutant(
        name="story-leaves-out-placements",
        module=_DECIDE,
        old='lines = [_line(placed, now, "placed", sentence,',
        new='lines = [_line(placed, now, "noted", sentence,',
        checker="story_replays",
    ),
)


class _Planter(importlib.abc.MetaPathFinder):
    """Loads one module from its own text, with one line made wrong."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Ours for one name only."""
        if fullname != self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        return found and importlib.util.spec_from_file_location(
            fullname, found.origin, loader=_Wrong(self._mutant, fullname, found)
        )


class _Wrong(importlib.machinery.SourceFileLoader):
    """The module's text, with one line made wrong."""

    def __init__(self, mutant: Mutant, name: str, found: importlib.machinery.ModuleSpec) -> None:
        super().__init__(name, str(found.origin))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  asked for one module only
        """Compiled from the changed text; never from or into a cache."""
        text = Path(self.path).read_text()
        code: CodeType = compile(planted(self._mutant, text), self.path, "exec")
        return code


def planted(mutant: Mutant, text: str) -> str:
    """The text with the bug in it; ValueError if its line is not there exactly once."""
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.module} has {text.count(mutant.old)} times {mutant.old!r}; plant it anew")
    return text.replace(mutant.old, mutant.new)


def plant(mutant: Mutant) -> None:
    """From now on the module is loaded with the bug; it must not be loaded yet."""
    if mutant.module in sys.modules:
        raise ValueError(f"{mutant.module} is loaded already; plant in a fresh process")
    sys.meta_path.insert(0, _Planter(mutant))


def find(mutant: Mutant, worlds: int = WORLDS_MAX) -> tuple[int, str] | None:
    """A world that finds the planted bug by its checker, and what it says."""
    from trainmaster.testing.checkers import check_world
    from trainmaster.testing.sim_world import run_world

    for seed in (*mutant.seeds, *range(worlds)):
        for finding in check_world(run_world(seed).world):
            if finding.checker == mutant.checker:
                return seed, finding.sentence
    return None


def main(arguments: list[str]) -> int:
    """List the mutants, or hunt one."""
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    if not arguments:
        for mutant in MUTANTS:
            sys.stdout.write(f"{mutant.name:36} {mutant.module:52} {mutant.checker}\n")
        return 0
    if arguments[0] not in by_name:
        sys.stderr.write(f"no mutant is called {arguments[0]}; without a name they are listed\n")
        return 2
    mutant = by_name[arguments[0]]
    plant(mutant)
    found = find(mutant, int(arguments[1]) if len(arguments) > 1 else WORLDS_MAX)
    sys.stdout.write(f"{mutant.name}: {'not found' if found is None else f'seed {found[0]}: {found[1]}'}\n")
    return int(found is None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
