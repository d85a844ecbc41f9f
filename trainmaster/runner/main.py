"""What happens on the training machine from the claim to the last byte? Event → core.supervise → carry out → next event."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from trainmaster.adapters import host
from trainmaster.adapters.machine import this_machine
from trainmaster.adapters.object_store import open_store
from trainmaster.core import checkpoints
from trainmaster.core import supervise as core
from trainmaster.core.facts import ExitReport, Heartbeat, StopSeen
from trainmaster.core.job import CheckpointRef, EnvironmentRef, Timeline
from trainmaster.core.messages import ClaimFile, JobFile, OpenFile
from trainmaster.core.metrics import METRICS_MAX
from trainmaster.core.supervise import Run, RunEvent, RunInstruction
from trainmaster.errors import StoreError, StoreFull, StoreUnavailable
from trainmaster.ports.object_store import BlockingStore
from trainmaster.ports.provider import LaunchFile
from trainmaster.runner import traces, workplace
from trainmaster.runner.committer import Committer, CommitterSettings
from trainmaster.runner.heart import Heart
from trainmaster.runner.log_pump import Pump, Shipper
from trainmaster.runner.log_search import LogSearch
from trainmaster.runner.metric_reader import MetricReader
from trainmaster.runner.patience import retrying, say
from trainmaster.runner.process import Ended, JobProcess
from trainmaster.runner.script_words import ScriptWords
from trainmaster.runner.workplace import SetUpError, Workplace
from trainmaster.spec import layout
from trainmaster.spec.job_spec import Environment

if TYPE_CHECKING:
    from trainmaster.runner.inputs import Inputs

_T = TypeVar("_T")
_TICK_S = 0.25
_OWN_WORDS_MAX = 256 << 10
_DRAIN_S = 10.0
#: less than this left on a disk: whoever wrote to it last may not have come to an end
_ROOM_BYTES = 1 << 20
#: what a script has no part in: another machine, or this one later, may do better
_MACHINE_TROUBLES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN}
)
#: how long a store that refuses the exit record is asked again
_REFUSED_S_MAX = 3600.0
#: how long the end of a job waits for metrics in the last of its output
_SEARCH_S = 20.0
_KILL_ROUNDS = 50


class Runner:
    """One attempt on one machine."""

    def __init__(self, folder: Path, file: LaunchFile, store: BlockingStore) -> None:
        self.folder, self.file, self.request, self.store = folder, file, file.request, store
        self._began_s, self._began_at = host.elapsed_s(), datetime.now(UTC)  # noqa: TID251  the machine's own clock, read once
        self._events: SimpleQueue[RunEvent] = SimpleQueue()
        self.run = Run(
            lease_until=self.now() + timedelta(seconds=self.request.attempt_lease_s),
            run_s_left=self.request.run_s_left,
            grace_s=self.request.grace_s,
            ends_with_lease=self.request.ends_with_lease,
        )
        self.timeline = Timeline()
        self.opened: OpenFile | None = None
        #: the environment the job was submitted from
        self._submitters: dict[str, str] = {}
        self.resumes: CheckpointRef | None = None
        self.restore_trouble = ""
        self.ended: Ended | None = None
        self.set_up_error = ""
        self.machine_is_to_blame = False
        self.machine = this_machine(self.request.placement.gpus)
        self.environment_failed = False
        self.environment: EnvironmentRef | None = None
        self.doing = ""
        self.progress: tuple[str, int, int] | None = None
        self._told: tuple[str, int, int] | None = None
        self._told_s = 0.0
        self.is_closed = False
        self._suspended = False
        self._had_room = True
        #: whether the last state of the checkpoint folder may be trusted; None: there is none to commit
        self._trusted: bool | None = None
        self._oom_before = host.out_of_memory_kills()
        self.process = JobProcess(self.request.name, Path(file.cgroup) if file.cgroup else None)
        job_id, attempt = self.request.job_id, self.request.attempt
        self.place = Workplace(home=folder / "home", request=self.request)
        self.metrics = MetricReader(store, layout.metrics_prefix(job_id, attempt), self.place.metrics_file)
        self.search = LogSearch(self.now, self.process.start_beside, self.metrics.take)
        self.shipper = Shipper(store, layout.log_prefix(job_id, attempt), self.search.add)
        self.pump = Pump(folder / "spool", self.shipper)
        self.heart = Heart(self.request, store, self.now, self._describe, self._events.put)
        self.committer: Committer | None = None
        self.inputs: Inputs | None = None

    def now(self) -> datetime:
        """Wall time that never jumps: a clock set back must not lengthen a lease."""
        return self._began_at + timedelta(seconds=host.elapsed_s() - self._began_s)

    def work(self) -> None:
        """From the claim to the end."""
        signal.signal(signal.SIGTERM, lambda *_: self._terminated())
        signal.signal(signal.SIGUSR1, lambda *_: self.heart.beat_now())
        self._events.put(core.Claimed() if self._claim() else core.ClaimRefused())
        while self.run.state is not core.RunState.DONE:
            try:
                event: RunEvent = self._events.get(timeout=_TICK_S)
            except Empty:
                event = core.Tick()
            self._advance(event)
            self._advance(core.Tick())
            self._tell_progress()

    def _advance(self, event: RunEvent) -> None:
        self.run, instructions = core.supervise(self.run, event, self.now())
        for instruction in instructions:
            self._carry_out(instruction)

    def _carry_out(self, instruction: RunInstruction) -> None:
        match instruction:
            case core.Prepare():
                self._aside(self._prepare)
            case core.Restore():
                self._aside(self._restore)
            case core.StartProcess():
                self._start_process()
            case core.SignalTree():
                self.process.signal(instruction.signal)
            case core.SuspendCommits():
                self._suspended = True
                self.is_closed = self.run.stop_seen is StopSeen.CLOSED
                self.shipper.is_closed = self.is_closed
                say("the attempt is closed" if self.is_closed else "the lease has lapsed: commits are suspended")
            case core.ResumeCommits():
                self._suspended = False
                say("the lease is renewed: commits go on")
            case core.FinalCommit():
                self._trusted = instruction.trusted
            case core.Upload():
                self._aside(self._upload)
            case core.WriteExit():
                self._write_exit()
            case core.Quit():
                self._quit()

    def _aside(self, work: Callable[[], RunEvent]) -> None:
        """Long work in a thread: lease, stop and limits are looked after meanwhile."""

        def run() -> None:
            try:
                self._events.put(work())
            except (SetUpError, ValueError, OSError, StoreError) as error:
                self._note_trouble(getattr(error, "sentence", "") or str(error), error)
                self._events.put(core.SetUpFailed())

        threading.Thread(target=run, name=work.__name__, daemon=True).start()

    def _note_trouble(self, sentence: str, error: BaseException) -> None:
        """What went wrong before the script ran, and whether the machine is to blame."""
        self.set_up_error = sentence
        is_machine = isinstance(error, OSError) and error.errno in _MACHINE_TROUBLES
        self.machine_is_to_blame = is_machine or getattr(error, "may_pass", False)
        self.environment_failed = isinstance(error, workplace.EnvironmentFailed)

    def _claim(self) -> bool:
        """Win the attempt, or learn that it is not ours. A put that raised may have happened: then we read who won."""
        job_id, attempt = self.request.job_id, self.request.attempt
        mine = msgspec.json.encode(
            ClaimFile(runner=f"{os.uname().nodename}:{os.getpid()}:{self._began_at.isoformat()}", at=self.now())
        )
        claim_until = self._began_at + timedelta(seconds=self.request.start_s_max)
        while True:
            try:
                if self.store.put_if_absent(layout.claim(job_id, attempt), mine):
                    break
                if self.store.get(layout.claim(job_id, attempt)) == mine:
                    break
                say("the attempt is claimed or closed already; nothing to do here")
                return False
            except (StoreUnavailable, StoreFull) as error:
                say(f"the claim waits for the store: {error.sentence}")
                threading.Event().wait(1.0)
                if not self._events.empty() or self.now() >= claim_until:
                    return False  # told to end before there was anything to end, or nobody is paid to wait any longer
        self.timeline = replace(self.timeline, claimed_at=self.now())
        return True

    def _prepare(self) -> RunEvent:
        job_id, attempt = self.request.job_id, self.request.attempt
        self.heart.start()
        file = retrying(lambda: self.store.get(layout.spec(job_id)))
        opened = retrying(lambda: self.store.get(layout.opened(job_id, attempt)))
        if file is None or opened is None:
            raise SetUpError("the job or its attempt is not in the store")
        self.place.known = msgspec.json.decode(file, type=JobFile)
        self.opened = msgspec.json.decode(opened, type=OpenFile)
        self._submitters = workplace.submission_environment(Path(self.file.environ_file) if self.file.environ_file else None)
        self.search.watch(self.place.file.spec.metrics.patterns)
        retrying(lambda: workplace.prepare(self.place, self.store))
        self._provide_environment()
        settings = CommitterSettings(
            job_id=job_id, attempt=attempt, folder=self.place.checkpoints, rules=self.place.file.spec.checkpoints
        )
        words = ScriptWords(self.metrics, self.place.checkpoints)
        self.committer = Committer(settings, self.store, self.now, self.process.writes, self._may_commit, words)
        self.timeline = replace(self.timeline, set_up_at=self.now())
        if self.place.file.spec.inputs:
            self._bring_inputs()
        return core.SetUp()

    def _provide_environment(self) -> None:
        """Nothing of it is loaded for a job that asks for nothing."""
        if self.place.file.spec.environment == Environment() and not self.place.file.lock:
            return
        from trainmaster.runner.environment import EnvironmentSetUp

        set_up = EnvironmentSetUp(self.place, self.file, self.store, self._tell_doing, lambda: self.run.stop_seen is None)
        try:
            self.environment = retrying(set_up.work)
        finally:
            self._tell_doing("")
            if words := set_up.log.read():
                key = layout.setup_log(self.request.job_id, self.request.attempt)
                retrying(lambda: self.store.put(key, words))

    def _tell_doing(self, what: str) -> None:
        if what != self.doing:
            self.doing = what
            self.heart.beat_now()

    def _bring_inputs(self) -> None:
        from trainmaster.runner.inputs import Cache, Inputs

        shared = Path(self.file.shared or self.folder)
        cache = Cache(folder=shared / "inputs", bytes_max=self.file.inputs_bytes_max, now_s=lambda: self.now().timestamp())
        inputs = self.inputs = Inputs(self.place, self.store, cache)
        tell, is_over = partial(self._note_progress, "fetching"), lambda: self.run.stop_seen is not None
        retrying(lambda: inputs.bring(self._submitters, tell, is_over))
        self.timeline = replace(self.timeline, fetched_at=self.now())
        self.progress = None

    def _restore(self) -> RunEvent:
        assert self.committer is not None
        if self.opened is not None and self.opened.resumes is not None:
            self.resumes = self._restore_newest(self.opened, self.opened.resumes, self.committer)
        self.timeline = replace(self.timeline, restored_at=self.now())
        self.progress = None
        return core.Restored()

    def _restore_newest(self, opened: OpenFile, head: CheckpointRef, committer: Committer) -> CheckpointRef:
        """The accepted head; if its bytes are damaged, the newest accepted commit before it that is whole."""
        damage: ValueError | None = None
        for ref in checkpoints.stand_ins(head, opened.heads, retrying(partial(committer.commits, opened.of_job))):
            try:
                retrying(partial(committer.restore, ref, self._counting("restoring", ref.size_bytes), opened.of_job))
            except ValueError as error:
                say(f"{error}")
                damage = damage or error
                continue
            if damage is not None:
                self.restore_trouble = f"{damage}; resumed from {ref.id} instead"
            return ref
        raise SetUpError(f"{damage}; no older checkpoint is whole")

    def _counting(self, what: str, total: int) -> Callable[[int], None]:
        """Counts bytes of long work for the heartbeat."""
        done, counting = 0, threading.Lock()

        def count(size: int) -> None:
            """Called by several threads, each with a file of its own."""
            nonlocal done
            with counting:
                done = min(done + size, total)
                self._note_progress(what, done, total)

        self._note_progress(what, 0, total)
        return count

    def _note_progress(self, what: str, done: int, total: int) -> None:
        self.progress = (what, done, total)

    def _tell_progress(self) -> None:
        """Whoever watches sees long work move, and end, once a second."""
        if self.progress != self._told and host.elapsed_s() - self._told_s > 1.0:
            self._told, self._told_s = self.progress, host.elapsed_s()
            self.heart.beat_now()

    def _start_process(self) -> None:
        assert self.committer is not None
        command, environ = workplace.start_up(self.place, self.resumes, self._submitters)
        self.shipper.start()
        try:
            self.process.start(command, environ, self.place.working, self.pump.sink, self._exited)
        except OSError as error:
            gone = command[0] == self.place.file.origin.python and not os.path.exists(command[0])
            why = "it is not there any more; it was the Python of the submission" if gone else error.strerror or error
            self._note_trouble(f"{command[0]} cannot be started: {why}", error)
            self._events.put(core.SetUpFailed())
            return
        self.pump.start()
        self.committer.start()
        self.heart.beat_now()

    def _exited(self, ended: Ended) -> None:
        self.ended = ended
        self.timeline = replace(self.timeline, exited_at=self.now())
        self._had_room = host.free_bytes(self.place.checkpoints) > _ROOM_BYTES
        heirs = ended.heirs_ended_by_themselves
        self._events.put(core.Exited(code=ended.code, signal=ended.signal, heirs_ended_by_themselves=heirs))

    def _upload(self) -> RunEvent:
        """The last commit, then everything that is left, until it is there or the attempt is closed."""
        if self.ended is not None:
            self.pump.finish(_DRAIN_S)
        if self.committer is not None and self._trusted is not None:
            trusted = self._trusted and not self._died_of_trouble()
            self.committer.finish(
                trusted=trusted, is_closed=lambda: self.is_closed, tell=partial(self._note_progress, "committing")
            )
        if self.ended is not None:
            self.shipper.finish(None)
            self.search.finish(0.0 if self.is_closed else _SEARCH_S)
        if self.inputs is not None:
            self.inputs.finish()
        pause_s = 0.2
        while not self.is_closed:
            try:
                self.metrics.read_file()
                self.metrics.flush()
                if self.ended is not None:
                    pairs = workplace.artifacts(self.place)
                    counting = self._counting("uploading", sum(path.stat().st_size for _, path in pairs))
                    workplace.upload(pairs, self.store, counting, self._may_commit)
                break
            except (StoreError, OSError) as error:
                say(f"upload waits: {getattr(error, 'sentence', error)}")
                threading.Event().wait(pause_s)
                pause_s = min(5.0, pause_s * 2)
        self.timeline = replace(self.timeline, uploaded_at=self.now())
        self.progress = None
        return core.Uploaded()

    def _died_of_trouble(self) -> bool:
        """Whether a script that was told to end did not end well: a traceback is its last word, or its disk was full. What it was
        saving then may be half a save."""
        if self.ended is None or self.ended.code == 0:
            return False
        return not self._had_room or traces.ends_with_traceback(self.shipper.tail)

    def _write_exit(self) -> None:
        if self.place.environment is not None:
            workplace.note_use(self.place.environment)
        value = msgspec.json.encode(self._report())
        own_words = _own_words(self.folder)
        job_id, attempt = self.request.job_id, self.request.attempt
        # Credentials that expired are renewed, permissions are mended: without this record a job that is done would run again.
        if own_words:
            key = layout.runner_log(job_id, attempt)
            retrying(lambda: self.store.put(key, own_words), refused_s_max=_REFUSED_S_MAX)
        retrying(lambda: self.store.put(layout.exit_record(job_id, attempt), value), refused_s_max=_REFUSED_S_MAX)

    def _quit(self) -> None:
        self.process.signal("SIGKILL")
        for _ in range(_KILL_ROUNDS):
            if not self.process.pids():
                (self.folder / "clean").touch()
                return
            threading.Event().wait(0.02)
            self.process.signal("SIGKILL")

    def _report(self) -> ExitReport:
        trace = traces.last_traceback(self.shipper.tail)
        ended = self.ended
        oom = traces.memory_words(trace)
        if not oom and ended is not None and ended.signal == "SIGKILL" and host.out_of_memory_kills() > self._oom_before:
            oom = "the kernel ended a process for lack of memory while the script ran"
        return ExitReport(
            timeline=self.timeline,
            code=ended.code if ended is not None else None,
            signal=ended.signal if ended is not None else None,
            stop_seen=self.run.stop_seen,
            set_up_error=self.set_up_error,
            machine_is_to_blame=self.machine_is_to_blame,
            environment_failed=self.environment_failed,
            environment=self.environment,
            failure=workplace.failure_text(self.place),
            traceback=trace,
            out_of_memory=oom if ended is None or ended.code != 0 else "",
            max_rss_bytes=ended.max_rss_bytes if ended is not None else 0,
            cpu_s=ended.cpu_s if ended is not None else 0.0,
            log_bytes=self.pump.bytes_seen,
            log_bytes_dropped=self.pump.bytes_dropped,
            commit=self.committer.newest if self.committer is not None else None,
            step=self.metrics.step,
            metrics=self.metrics.tally.summary(),
            machine=self.machine,
            left_behind=workplace.not_kept(self.place) if ended is not None else [],
            warnings=self._warnings(),
            inputs=self.inputs.summaries if self.inputs is not None else {},
        )

    def _describe(self, at: datetime, until: datetime) -> Heartbeat:
        return Heartbeat(
            at=at,
            lease_until=until,
            state=self.run.state.value,
            timeline=self.timeline,
            commit=self.committer.newest if self.committer is not None else None,
            step=self.metrics.step,
            metrics=self.metrics.tally.summary(),
            machine=self.machine,
            log_bytes=self.pump.bytes_seen,
            progress=self.progress,
            doing=self.doing,
            environment=self.environment,
            rss_bytes=sum(map(host.resident_bytes, self.process.pids())),
            warnings=[*self._warnings(), *filter(None, [self.metrics.flush_quietly()])],
            inputs=self.inputs.summaries if self.inputs is not None else {},
        )

    def _warnings(self) -> list[str]:
        found = [self.restore_trouble, self.committer.trouble if self.committer is not None else "", self.shipper.trouble]
        for channel, read in self.inputs.summaries.items() if self.inputs is not None else ():
            found.append(f"inputs.{channel}: {read.warning}" if read.warning else "")
        if self._suspended:
            found.append("commits are suspended: the attempt lease is not renewed")
        if self.pump.bytes_dropped:
            found.append(f"{self.pump.bytes_dropped} bytes of output were dropped")
        if self.metrics.points_dropped:
            found.append(f"{self.metrics.points_dropped} metric points were dropped")
        if self.metrics.tally.is_full:
            found.append(f"more than {METRICS_MAX} metrics: those beyond are kept, but cannot be searched for")
        return [text for text in [*found, *self.search.troubles] if text]

    def _may_commit(self) -> bool:
        return not self._suspended and not self.is_closed and self.now() < self.run.lease_until

    def _terminated(self) -> None:
        self._events.put(core.StopWanted(why=StopSeen.TERMINATED, grace_s=self.run.grace_s))


def main() -> None:
    """Entry point: `python -m trainmaster.runner <allocation folder> <lock descriptor>`."""
    folder = Path(sys.argv[1])
    # The lock came with us through exec; while it is held, the provider knows that we live. Nobody we start may inherit it.
    os.set_inheritable(int(sys.argv[2]), False)  # noqa: FBT003
    host.adopt_orphans()
    threading.excepthook = _broken
    file = msgspec.json.decode((folder / "launch.json").read_bytes(), type=LaunchFile)
    (folder / "spool").mkdir(exist_ok=True)
    store = retrying(
        lambda: open_store(file.request.store_url, options=file.store_options, create=False), for_s_max=file.request.start_s_max
    )
    Runner(folder, file, store).work()
    sys.stdout.flush()
    os._exit(0)  # threads that wait for a store must not keep a finished runner alive


def _broken(failed: threading.ExceptHookArgs) -> None:
    """A thread died of a fault of ours. Going on without it would lose logs or commits in silence: end, and let another try."""
    sys.excepthook(failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback)
    sys.stderr.flush()
    os._exit(70)


def _own_words(folder: Path) -> bytes:
    """The end of what this runner said about itself; most say nothing."""
    try:
        return (folder / "runner.log").read_bytes()[-_OWN_WORDS_MAX:]
    except OSError:
        return b""
