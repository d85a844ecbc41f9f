"""What does a runner do next? (Run, event) → (Run, instructions): the runner's state machine, pure like the control plane's.

The runner's shell turns what happens on the machine into events, and carries out instructions in order. Rules kept here:

* Nothing is touched before the claim is won; a claim found closed ends the run: commits stop first, then the process, then we go.
* Commits are allowed only inside the attempt lease. A lease that lapsed (store away, machine paused) suspends them; they resume
  when the lease is renewed and the attempt is still ours.
* A stop is SIGTERM to the whole tree, a grace, then SIGKILL.
* The last state of the checkpoint folder is trusted when the script ended by itself with 0, or ended by itself after our SIGTERM.
  A script that died may have died in the middle of a write: then only what was seen lying still while it lived is committed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.core.facts import StopSeen


class RunState(StrEnum):
    """Where a runner is."""

    CLAIMING = "claiming"
    SETTING_UP = "setting up"
    RESTORING = "restoring"
    TRAINING = "training"
    ENDING = "ending"
    UPLOADING = "uploading"
    DONE = "done"


class Run(Struct, frozen=True, kw_only=True):
    """What a runner remembers between events."""

    state: RunState = RunState.CLAIMING
    lease_until: datetime
    #: the end of the job's running time, once the process runs
    run_until: datetime | None = None
    run_s_left: float | None = None
    #: between SIGTERM and SIGKILL when the running time is used up
    grace_s: float = 30.0
    #: nobody can confirm that this machine is gone, so the run ends with its lease and a successor may count on that
    ends_with_lease: bool = False
    commits_suspended: bool = False
    stop_seen: StopSeen | None = None
    kill_at: datetime | None = None
    #: a claim that cannot be won by then is given up: a machine must not be paid for waiting
    claim_until: datetime | None = None


class Claimed(Struct, frozen=True):
    """The claim is ours."""


class ClaimRefused(Struct, frozen=True):
    """Somebody else holds the claim, or it was closed."""


class SetUp(Struct, frozen=True):
    """Code and folders are there."""


class SetUpFailed(Struct, frozen=True):
    """Code, folders or the restore failed for good."""


class Restored(Struct, frozen=True):
    """The accepted head is in the checkpoint folder, or there was none."""


class Exited(Struct, frozen=True, kw_only=True):
    """The job's process ended."""

    code: int | None
    signal: str | None
    #: it had started others (it was a shell), and those outlived it and ended by themselves
    heirs_ended_by_themselves: bool = False


class StopWanted(Struct, frozen=True, kw_only=True):
    """An order to stop, the machine going away, or the running time used up."""

    why: StopSeen
    grace_s: float


class FoundClosed(Struct, frozen=True):
    """Our attempt was closed by the control plane."""


class LeaseRenewed(Struct, frozen=True):
    """A heartbeat was written and the attempt is still ours."""

    until: datetime


class Tick(Struct, frozen=True):
    """Time passed."""


class Uploaded(Struct, frozen=True):
    """Everything that was to be uploaded is in the store."""


RunEvent = (
    Claimed | ClaimRefused | SetUp | SetUpFailed | Restored | Exited | StopWanted | FoundClosed | LeaseRenewed | Tick | Uploaded
)


class Prepare(Struct, frozen=True):
    """Fetch the code and make the folders."""


class Restore(Struct, frozen=True):
    """Fetch and verify the accepted head."""


class StartProcess(Struct, frozen=True):
    """Start the job."""


class SignalTree(Struct, frozen=True):
    """Send a signal to every process of the job."""

    signal: str


class SuspendCommits(Struct, frozen=True):
    """Commit nothing until told otherwise."""


class ResumeCommits(Struct, frozen=True):
    """Commits are allowed again."""


class FinalCommit(Struct, frozen=True):
    """Commit the checkpoint folder a last time."""

    #: whether what lies there now may be trusted, or only what was seen lying still while the script lived
    trusted: bool


class Upload(Struct, frozen=True, kw_only=True):
    """Flush logs and metrics, upload model and output."""

    #: False: logs and metrics only. Model and output lie under keys without an attempt, and a successor may be writing them
    outputs: bool = True


class WriteExit(Struct, frozen=True):
    """Write the exit record."""


class Quit(Struct, frozen=True):
    """End the runner."""


RunInstruction = (
    Prepare | Restore | StartProcess | SignalTree | SuspendCommits | ResumeCommits | FinalCommit | Upload | WriteExit | Quit
)
_Step = tuple[Run, tuple[RunInstruction, ...]]


def supervise(run: Run, event: RunEvent, now: datetime) -> _Step:
    """The runner's next step."""
    if run.state is RunState.DONE:
        return run, ()
    match event:
        case Claimed():
            return _unless_ending(run, RunState.SETTING_UP, (Prepare(),))
        case ClaimRefused():
            return replace(run, state=RunState.DONE), (Quit(),)
        case SetUp():
            return _unless_ending(run, RunState.RESTORING, (Restore(),))
        case Restored():
            return _start(run, now)
        case SetUpFailed():
            return _upload(run) if run.state is not RunState.UPLOADING else _uploaded(run)
        case Exited():
            return _exited(run, event)
        case FoundClosed() | StopWanted(why=StopSeen.CLOSED):
            return _closed(run, now)
        case StopWanted():
            return _stop(run, event, now)
        case LeaseRenewed():
            return _renewed(run, event, now)
        case Tick():
            return _tick(run, now)
        case Uploaded():
            return _uploaded(run)
        case _:
            assert_never(event)


def _uploaded(run: Run) -> _Step:
    """Nothing is left to send, or cannot be sent: the exit record comes last, always."""
    final: tuple[RunInstruction, ...] = (Quit(),) if run.stop_seen is StopSeen.CLOSED else (WriteExit(), Quit())
    return replace(run, state=RunState.DONE), final


def _unless_ending(run: Run, state: RunState, instructions: tuple[RunInstruction, ...]) -> _Step:
    """Go on, unless a stop came while we were busy: then there is no process to wait for."""
    if run.stop_seen is not None:
        return _upload(run)
    return replace(run, state=state), instructions


def _upload(run: Run, first: tuple[RunInstruction, ...] = ()) -> _Step:
    uploading = replace(run, state=RunState.UPLOADING, kill_at=None)
    return uploading, (*first, Upload(outputs=run.stop_seen is not StopSeen.CLOSED))


def _start(run: Run, now: datetime) -> _Step:
    run_until = None if run.run_s_left is None else now + timedelta(seconds=run.run_s_left)
    return _unless_ending(replace(run, run_until=run_until), RunState.TRAINING, (StartProcess(),))


def _exited(run: Run, event: Exited) -> _Step:
    was_told = run.stop_seen is not None
    by_itself = (event.signal is None and (event.code == 0 or was_told)) or (was_told and event.heirs_ended_by_themselves)
    # Whatever the script left running dies with it: nobody would ever wait for it.
    clean = SignalTree("SIGKILL")
    if run.stop_seen is StopSeen.CLOSED:
        return _upload(run, (clean,))
    return _upload(run, (clean, FinalCommit(trusted=by_itself)))


def _renewed(run: Run, event: LeaseRenewed, now: datetime) -> _Step:
    if run.stop_seen is StopSeen.CLOSED:
        return run, ()  # a heartbeat that was under way when the attempt was closed gives nothing back
    run = replace(run, lease_until=event.until)
    if not run.commits_suspended or event.until <= now:
        return run, ()
    return replace(run, commits_suspended=False), (ResumeCommits(),)


def _stop(run: Run, event: StopWanted, now: datetime) -> _Step:
    kill_at = now + timedelta(seconds=event.grace_s)
    if run.state is RunState.ENDING:
        # The first cause stands; a machine that goes away sooner than the grace under way shortens it.
        return replace(run, kill_at=min(kill_at, run.kill_at or kill_at)), ()
    if run.stop_seen is not None or run.state is RunState.UPLOADING:
        return run, ()
    run = replace(run, stop_seen=event.why)
    if run.state is not RunState.TRAINING:
        return run, ()  # the step under way ends first; then nothing is started
    return replace(run, state=RunState.ENDING, kill_at=kill_at), (SignalTree("SIGTERM"),)


def _closed(run: Run, now: datetime) -> _Step:
    if run.stop_seen is StopSeen.CLOSED:
        return run, ()
    closed = replace(run, stop_seen=StopSeen.CLOSED, commits_suspended=True)
    if run.state in {RunState.TRAINING, RunState.ENDING}:
        # No grace: its successor may be training already, and nothing it writes now can count.
        return replace(closed, state=RunState.ENDING, kill_at=now), (SuspendCommits(), SignalTree("SIGKILL"))
    return closed, (SuspendCommits(),)


def _tick(run: Run, now: datetime) -> _Step:
    instructions: tuple[RunInstruction, ...] = ()
    if run.state is RunState.CLAIMING:
        gives_up = run.stop_seen is not None or (run.claim_until is not None and now >= run.claim_until)
        return (replace(run, state=RunState.DONE), (Quit(),)) if gives_up else (run, ())
    if now >= run.lease_until and run.ends_with_lease and run.stop_seen is not StopSeen.CLOSED:
        return _closed(run, now)
    if now >= run.lease_until and not run.commits_suspended:
        run, instructions = replace(run, commits_suspended=True), (SuspendCommits(),)
    if run.state is RunState.TRAINING and run.run_until is not None and now >= run.run_until:
        run, stop = _stop(run, StopWanted(why=StopSeen.RUN_LIMIT, grace_s=run.grace_s), now)
        return run, (*instructions, *stop)
    if run.kill_at is not None and now >= run.kill_at:
        # Again every second until the exit is seen: a process may have forked between two looks.
        return replace(run, kill_at=now + timedelta(seconds=1)), (*instructions, SignalTree("SIGKILL"))
    return run, instructions
