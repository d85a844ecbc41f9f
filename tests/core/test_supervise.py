"""What does the runner do next? A line for each state × event, then a shell that does as it is told in a world that does not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from trainmaster.core.facts import StopSeen
from trainmaster.core.supervise import (
    Claimed,
    ClaimRefused,
    Exited,
    FinalCommit,
    FoundClosed,
    LeaseRenewed,
    Prepare,
    Quit,
    Restore,
    Restored,
    ResumeCommits,
    Run,
    RunEvent,
    RunInstruction,
    RunState,
    SetUp,
    SetUpFailed,
    SignalTree,
    StartProcess,
    StopWanted,
    SuspendCommits,
    Tick,
    Upload,
    Uploaded,
    WriteExit,
    supervise,
)
from trainmaster.testing.builders import at

TERM, KILL = SignalTree("SIGTERM"), SignalTree("SIGKILL")
ORDER = StopWanted(why=StopSeen.ORDER, grace_s=30)
GONE_SOON = StopWanted(why=StopSeen.TERMINATED, grace_s=5)
LOGS_ONLY = Upload(outputs=False)


def _run(state: RunState, **fields) -> Run:
    return Run(state=state, **{"lease_until": at(100), **fields})


CLAIMING, SETTING_UP, RESTORING, TRAINING, UPLOADING, DONE = (
    _run(s)
    for s in (RunState.CLAIMING, RunState.SETTING_UP, RunState.RESTORING, RunState.TRAINING, RunState.UPLOADING, RunState.DONE)
)
ORDERED = replace(TRAINING, state=RunState.ENDING, stop_seen=StopSeen.ORDER, kill_at=at(40))
CLOSED = replace(TRAINING, state=RunState.ENDING, stop_seen=StopSeen.CLOSED, commits_suspended=True, kill_at=at(10))
BOUND = replace(TRAINING, ends_with_lease=True)


def _told(run: Run, why: StopSeen = StopSeen.ORDER) -> Run:
    return replace(run, stop_seen=why)


# (run, event, seconds) → (run, instructions), the last to the letter: nothing else may be asked for
ROWS = [
    # the way there
    (CLAIMING, Claimed(), 10, SETTING_UP, [Prepare()]),
    (CLAIMING, ClaimRefused(), 10, DONE, [Quit()]),
    (SETTING_UP, SetUp(), 10, RESTORING, [Restore()]),
    (SETTING_UP, SetUpFailed(), 10, UPLOADING, [Upload()]),
    (RESTORING, SetUpFailed(), 10, UPLOADING, [Upload()]),
    (UPLOADING, SetUpFailed(), 10, DONE, [WriteExit(), Quit()]),
    (RESTORING, Restored(), 10, TRAINING, [StartProcess()]),
    (
        replace(RESTORING, run_s_left=50),
        Restored(),
        10,
        replace(TRAINING, run_s_left=50, run_until=at(60)),
        [StartProcess()],
    ),
    # the end by itself
    (TRAINING, Exited(code=0, signal=None), 10, UPLOADING, [KILL, FinalCommit(trusted=True), Upload()]),
    (TRAINING, Exited(code=1, signal=None), 10, UPLOADING, [KILL, FinalCommit(trusted=False), Upload()]),
    (TRAINING, Exited(code=None, signal="SIGSEGV"), 10, UPLOADING, [KILL, FinalCommit(trusted=False), Upload()]),
    (UPLOADING, Uploaded(), 10, DONE, [WriteExit(), Quit()]),
    # a stop
    (CLAIMING, ORDER, 10, _told(CLAIMING), []),
    (SETTING_UP, ORDER, 10, _told(SETTING_UP), []),
    (RESTORING, ORDER, 10, _told(RESTORING), []),
    (TRAINING, ORDER, 10, ORDERED, [TERM]),
    (UPLOADING, ORDER, 10, UPLOADING, []),
    (_told(CLAIMING), Claimed(), 10, _told(UPLOADING), [Upload()]),
    (_told(SETTING_UP), SetUp(), 10, _told(UPLOADING), [Upload()]),
    (_told(RESTORING), Restored(), 10, _told(UPLOADING), [Upload()]),
    (_told(RESTORING), GONE_SOON, 10, _told(RESTORING), []),
    (ORDERED, ORDER, 20, ORDERED, []),  # a second order lengthens nothing
    (ORDERED, GONE_SOON, 20, replace(ORDERED, kill_at=at(25)), []),  # the machine goes sooner
    (ORDERED, Tick(), 39, ORDERED, []),
    (ORDERED, Tick(), 40, replace(ORDERED, kill_at=at(41)), [KILL]),
    (ORDERED, Exited(code=1, signal=None), 20, _told(UPLOADING), [KILL, FinalCommit(trusted=True), Upload()]),
    (ORDERED, Exited(code=None, signal="SIGKILL"), 41, _told(UPLOADING), [KILL, FinalCommit(trusted=False), Upload()]),
    (  # a shell that died of our SIGTERM, and the script it had started, which saved and went
        ORDERED,
        Exited(code=None, signal="SIGTERM", heirs_ended_by_themselves=True),
        20,
        _told(UPLOADING),
        [KILL, FinalCommit(trusted=True), Upload()],
    ),
    (
        TRAINING,
        Exited(code=None, signal="SIGTERM", heirs_ended_by_themselves=True),
        20,
        UPLOADING,
        [KILL, FinalCommit(trusted=False), Upload()],
    ),
    (_told(UPLOADING), Uploaded(), 50, _told(DONE), [WriteExit(), Quit()]),
    # closed: commits end first, then the process, and no word is left behind
    (CLAIMING, FoundClosed(), 10, replace(_told(CLAIMING, StopSeen.CLOSED), commits_suspended=True), [SuspendCommits()]),
    (TRAINING, FoundClosed(), 10, CLOSED, [SuspendCommits(), KILL]),
    (TRAINING, StopWanted(why=StopSeen.CLOSED, grace_s=9), 10, CLOSED, [SuspendCommits(), KILL]),
    (ORDERED, FoundClosed(), 10, CLOSED, [SuspendCommits(), KILL]),
    (UPLOADING, FoundClosed(), 10, replace(_told(UPLOADING, StopSeen.CLOSED), commits_suspended=True), [SuspendCommits()]),
    (CLOSED, FoundClosed(), 11, CLOSED, []),
    (CLOSED, LeaseRenewed(until=at(200)), 11, CLOSED, []),
    (CLOSED, Tick(), 11, replace(CLOSED, kill_at=at(12)), [KILL]),
    (CLOSED, Exited(code=0, signal=None), 11, replace(CLOSED, state=RunState.UPLOADING, kill_at=None), [KILL, LOGS_ONLY]),
    (
        replace(CLOSED, state=RunState.RESTORING),
        Restored(),
        11,
        replace(CLOSED, state=RunState.UPLOADING, kill_at=None),
        [LOGS_ONLY],
    ),
    (replace(CLOSED, state=RunState.UPLOADING), Uploaded(), 11, replace(CLOSED, state=RunState.DONE), [Quit()]),
    # the attempt lease
    (TRAINING, Tick(), 99, TRAINING, []),
    (TRAINING, Tick(), 100, replace(TRAINING, commits_suspended=True), [SuspendCommits()]),
    (replace(TRAINING, commits_suspended=True), Tick(), 101, replace(TRAINING, commits_suspended=True), []),
    (TRAINING, LeaseRenewed(until=at(200)), 50, replace(TRAINING, lease_until=at(200)), []),
    (
        replace(TRAINING, commits_suspended=True),
        LeaseRenewed(until=at(200)),
        150,
        replace(TRAINING, lease_until=at(200)),
        [ResumeCommits()],
    ),
    (
        replace(TRAINING, commits_suspended=True),
        LeaseRenewed(until=at(200)),
        200,  # it took too long: the renewal is over before it was heard of
        replace(TRAINING, commits_suspended=True, lease_until=at(200)),
        [],
    ),
    (BOUND, Tick(), 100, replace(CLOSED, ends_with_lease=True, kill_at=at(100)), [SuspendCommits(), KILL]),
    (  # and it is killed again and again, should it have forked meanwhile
        replace(CLOSED, ends_with_lease=True),
        Tick(),
        101,
        replace(CLOSED, ends_with_lease=True, kill_at=at(102)),
        [KILL],
    ),
    # the running time
    (replace(TRAINING, run_until=at(50)), Tick(), 49, replace(TRAINING, run_until=at(50)), []),
    (
        replace(TRAINING, run_until=at(50), grace_s=7),
        Tick(),
        50,
        replace(ORDERED, stop_seen=StopSeen.RUN_LIMIT, run_until=at(50), grace_s=7, kill_at=at(57)),
        [TERM],
    ),
    (replace(ORDERED, run_until=at(20)), Tick(), 30, replace(ORDERED, run_until=at(20)), []),
    (
        replace(ORDERED, lease_until=at(40)),
        Tick(),
        40,
        replace(ORDERED, lease_until=at(40), commits_suspended=True, kill_at=at(41)),
        [SuspendCommits(), KILL],
    ),
]


@pytest.mark.parametrize(("run", "event", "seconds", "expected", "instructions"), ROWS)
def test_the_next_step_and_nothing_else(run, event, seconds, expected, instructions):
    assert supervise(run, event, at(seconds)) == (expected, tuple(instructions))


SECONDS = st.integers(0, 300)
EVENTS: st.SearchStrategy[RunEvent] = st.one_of(
    st.sampled_from([Claimed(), ClaimRefused(), SetUp(), SetUpFailed(), Restored(), FoundClosed(), Tick(), Uploaded()]),
    st.builds(Exited, code=st.none() | st.integers(0, 2), signal=st.none() | st.just("SIGKILL")),
    st.builds(StopWanted, why=st.sampled_from(StopSeen), grace_s=st.integers(0, 40)),
    st.builds(LeaseRenewed, SECONDS.map(at)),
)


@given(EVENTS, SECONDS)
def test_safety_a_runner_that_is_done_does_nothing_more(event, seconds):
    assert supervise(DONE, event, at(seconds)) == (DONE, ())


@given(st.booleans(), st.lists(st.tuples(EVENTS, SECONDS), max_size=12))
def test_safety_whatever_comes_in_whatever_order_a_closed_run_commits_nothing(bound, events):
    run, closed = replace(CLAIMING, ends_with_lease=bound), False
    for event, seconds in events:
        run, instructions = supervise(run, event, at(seconds))
        closed = closed or run.stop_seen is StopSeen.CLOSED
        if closed:
            assert run.stop_seen is StopSeen.CLOSED
            assert run.commits_suspended
            forbidden = (ResumeCommits, FinalCommit, WriteExit, StartProcess)
            assert not any(isinstance(i, forbidden) or i == Upload(outputs=True) for i in instructions)


class Shell(RuleBasedStateMachine):
    """A runner's shell on a machine where steps take their time, scripts ignore signals and the bucket comes and goes."""

    @initialize(run_s=st.none() | st.sampled_from([0.0, 60.0]), bound=st.booleans(), steps=st.sampled_from([0, 1, 2, 3, 3, 3]))
    def begin(self, run_s, bound, steps):
        self.clock = 0.0
        self.run = Run(lease_until=at(60), run_s_left=run_s, ends_with_lease=bound)
        self.busy: RunInstruction | None = None
        self.script = "none"  # none, alive, told, killed, ended
        self.kill_due: float | None = None
        self.commits_allowed = True
        self.was_closed = False
        self.log: list[RunInstruction] = []
        # Most trouble comes to those that train: begin some of the way there.
        for step in (lambda: self.claim_is_answered(won=True), *[lambda: self.work_ends(works=True)] * 2)[:steps]:
            step()

    @precondition(lambda self: self.run.state is RunState.CLAIMING)
    @rule(won=st.sampled_from([True, True, True, False]))
    def claim_is_answered(self, won):
        self._tell(Claimed() if won else ClaimRefused())

    @precondition(lambda self: self.busy is not None)
    @rule(works=st.sampled_from([True, True, True, False]))
    def work_ends(self, works):
        done, self.busy = self.busy, None
        answers: dict[type, RunEvent] = {Prepare: SetUp(), Restore: Restored(), Upload: Uploaded()}
        self._tell(answers[type(done)] if works or isinstance(done, Upload) else SetUpFailed())

    @precondition(lambda self: self.script in {"alive", "told", "killed"})
    @rule(code=st.sampled_from([0, 1, None]))
    def script_ends(self, code):
        killed = self.script == "killed" or code is None
        self.script = "ended"
        before = len(self.log)
        self._tell(Exited(code=None if killed else code, signal="SIGKILL" if killed else None))
        assert isinstance(self.log[-1], Upload), "after the script has ended there is always an upload"
        assert self.log[before] == KILL, "what it left running dies with it"

    @rule(why=st.sampled_from([StopSeen.ORDER, StopSeen.TERMINATED]), grace_s=st.sampled_from([0.0, 10.0, 30.0]))
    def stop_is_wanted(self, why, grace_s):
        if self.script in {"alive", "told"}:
            self.kill_due = min(self.kill_due or 1e9, self.clock + grace_s)
        self._tell(StopWanted(why=why, grace_s=grace_s))

    @rule(rarely=st.integers(0, 3))
    def found_closed(self, rarely):
        if rarely == 0:
            self.was_closed = True
            self._tell(FoundClosed())

    @rule(late_s=st.sampled_from([0.0, 100.0]))
    def lease_is_renewed(self, late_s):
        self._tell(LeaseRenewed(until=at(self.clock + 60 - late_s)))

    @rule(seconds=st.sampled_from([0.5, 5.0, 40.0, 70.0]))
    def time_passes(self, seconds):
        self.clock += seconds
        self._tell(Tick())
        if self.kill_due is not None and self.clock >= self.kill_due and self.script in {"alive", "told"}:
            raise AssertionError("the grace is over and nobody sent SIGKILL")

    @invariant()
    def a_closed_run_never_commits_again(self):
        if self.was_closed and self.run.state is not RunState.DONE:
            assert not self.commits_allowed

    @invariant()
    def commits_are_allowed_only_inside_the_lease(self):
        """As of the last tick or renewal."""
        if self.run.state is not RunState.DONE:
            assert self.commits_allowed is not self.run.commits_suspended

    @invariant()
    def everything_happens_at_most_once(self):
        for once in (Prepare, Restore, StartProcess, FinalCommit, Upload, WriteExit, Quit):
            assert sum(isinstance(i, once) for i in self.log) <= 1, once
        assert sum(i == TERM for i in self.log) <= 1
        assert any(isinstance(i, Quit) for i in self.log) == (self.run.state is RunState.DONE)

    @invariant()
    def what_follows_what(self):
        kinds = [type(i) for i in self.log]
        for first, then in ((Prepare, Restore), (Restore, StartProcess), (Upload, WriteExit)):
            assert then not in kinds or first in kinds[: kinds.index(then)]
        assert not {FinalCommit, Upload} <= set(kinds) or kinds.index(FinalCommit) < kinds.index(Upload)
        assert StartProcess not in kinds or self.script != "none"
        assert self.script not in {"alive", "told", "killed"} or self.run.state in {RunState.TRAINING, RunState.ENDING}

    def teardown(self):
        """Everybody does what they should: the runner quits within a bounded number of steps."""
        if not hasattr(self, "run"):
            return
        for _ in range(12):
            if self.run.state is RunState.DONE:
                break
            if self.run.state is RunState.CLAIMING:
                self.claim_is_answered(won=True)
            elif self.busy is not None:
                self.work_ends(works=True)
            else:
                self.script_ends(code=0)
        assert self.run.state is RunState.DONE
        has_word = any(isinstance(i, WriteExit) for i in self.log)
        claimed = any(isinstance(i, Upload) for i in self.log)
        assert has_word == (claimed and self.run.stop_seen is not StopSeen.CLOSED)

    def _tell(self, event: RunEvent) -> None:
        self.run, instructions = supervise(self.run, event, at(self.clock))
        self.log += instructions
        for instruction in instructions:
            match instruction:
                case Prepare() | Restore() | Upload():
                    assert self.busy is None
                    self.busy = instruction
                case StartProcess():
                    self.script = "alive"
                case SignalTree(signal="SIGTERM"):
                    assert self.script == "alive"
                    self.script = "told"
                case SignalTree():
                    self.script = "killed" if self.script in {"alive", "told"} else self.script
                case SuspendCommits():
                    self.commits_allowed = False
                case ResumeCommits():
                    self.commits_allowed = True


TestShell = Shell.TestCase
TestShell.settings = settings(settings.default, max_examples=settings.default.max_examples * 3)


def test_the_grace_begins_when_the_stop_is_heard():
    run, _ = supervise(TRAINING, ORDER, at(10))
    assert run.kill_at == at(10) + timedelta(seconds=30)
