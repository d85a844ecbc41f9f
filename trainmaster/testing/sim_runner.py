"""What does a runner do on a simulated machine? The production state machine, `core/supervise.py`, with a shell in virtual time.

The shell follows `runner/main.py` step by step: claim, prepare, restore, train, commit, upload, exit record; its store is reached
over the net, so every request may be late, lost or answered twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trainmaster.core import checkpoints
from trainmaster.core import supervise as core
from trainmaster.core.facts import ExitReport, Heartbeat, StopSeen
from trainmaster.core.job import CheckpointRef, Timeline
from trainmaster.core.messages import ClaimFile, Manifest, ManifestFile, OpenFile, OrderFile, OrderKind
from trainmaster.core.supervise import Run, RunEvent, RunInstruction
from trainmaster.errors import StoreError
from trainmaster.ports.provider import LaunchRequest
from trainmaster.spec import layout
from trainmaster.testing.sim_net import Net, Party
from trainmaster.testing.sim_script import Folder, Script, Training
from trainmaster.testing.sim_store import StoreDoor
from trainmaster.testing.witness import Flushed, Signalled, Told, TrainingBegan, TrainingEnded

_T = TypeVar("_T")
_SETTLE_S = 1.0
_RETRY_S = 5.0


class RunnerOrder(Struct, frozen=True, kw_only=True):
    """What a machine tells its runner."""

    request: LaunchRequest
    script: Script
    keep: int


class SimRunner:
    """One attempt on one simulated machine."""

    def __init__(self, order: RunnerOrder, who: Party, net: Net, store: StoreDoor, quit_: Callable[[], object]) -> None:
        self.order, self.request, self.who, self.net, self.store, self._quit = order, order.request, who, net, store, quit_
        self.events: asyncio.Queue[RunEvent] = asyncio.Queue()
        self._began_s, self._began_at = net.loop.seconds, who.now()
        lease_until = self.now() + timedelta(seconds=self.request.attempt_lease_s)
        self.run = Run(
            lease_until=lease_until,
            run_s_left=self.request.run_s_left,
            grace_s=self.request.grace_s,
            ends_with_lease=self.request.ends_with_lease,
            claim_until=self.now() + timedelta(seconds=self.request.start_s_max),
        )
        self.timeline = Timeline()
        self.folder = Folder()
        self.resumed: CheckpointRef | None = None
        self.heads: list[str] = []
        self.training: Training | None = None
        self.newest: CheckpointRef | None = None
        self._code: int | None = None
        self._signal: str | None = None
        self._error = ""
        self._trusted: bool | None = None
        self._suspended = False
        self._is_closed = False
        self._seq = 0
        self._chunk = 0
        self._logged = 0
        self._committed_version = 0
        self._still_version = 0
        self._watching: asyncio.Task[None] | None = None
        #: a marker whose fate is unknown: it is put again, the same, before anything else is committed
        self._unanswered: CheckpointRef | None = None
        self._flushing = asyncio.Lock()
        self._pending_chunk = b""

    def now(self) -> datetime:
        """As runner/main.py: the machine's clock is read once, and then time only passes."""
        return self._began_at + timedelta(seconds=self.net.loop.seconds - self._began_s)

    async def work(self) -> None:
        """From the claim to the end."""
        self._aside(self._claim())
        while self.run.state is not core.RunState.DONE:
            timeout = max(0.0, (self._next_moment() - self.now()).total_seconds())
            try:
                event: RunEvent = await asyncio.wait_for(self.events.get(), timeout + 0.001)
            except TimeoutError:
                event = core.Tick()
            await self.who.alive()
            for step in (event, core.Tick()):
                self.run, instructions = core.supervise(self.run, step, self.now())
                for instruction in instructions:
                    await self._carry_out(instruction)

    def _next_moment(self) -> datetime:
        run, now = self.run, self.now()
        moments = [m for m in (run.lease_until, run.run_until, run.kill_at, run.claim_until) if m is not None and m > now]
        return min(moments, default=now + timedelta(seconds=60))

    async def _carry_out(self, instruction: RunInstruction) -> None:
        match instruction:
            case core.Prepare():
                self._aside(self._prepare())
            case core.Restore():
                self._aside(self._restore())
            case core.StartProcess():
                self._start_training()
            case core.SignalTree():
                self._signal_training(instruction.signal)
            case core.SuspendCommits():
                self._suspended = True
                self._is_closed = self.run.stop_seen is StopSeen.CLOSED
            case core.ResumeCommits():
                self._suspended = False
            case core.FinalCommit():
                self._trusted = instruction.trusted
            case core.Upload():
                self._aside(self._upload())
            case core.WriteExit():
                await self._write_exit()
            case core.Quit():
                self._quit()

    def _aside(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.who.tasks.append(task)
        return task

    async def _retrying(self, call: Callable[[], Awaitable[_T]]) -> _T:
        while True:
            try:
                return await call()
            except StoreError:
                await self.who.sleep(_RETRY_S)

    async def _claim(self) -> None:
        key = layout.claim(self.request.job_id, self.request.attempt)
        mine = msgspec.json.encode(ClaimFile(runner=self.who.name, at=self.now()))
        while True:
            try:
                is_ours = await self.store.put_if_absent(key, mine) or await self.store.get(key) == mine
            except StoreError:
                await self.who.sleep(_RETRY_S)
                continue
            break
        if is_ours:
            self.timeline = replace(self.timeline, claimed_at=self.now())
        self.events.put_nowait(core.Claimed() if is_ours else core.ClaimRefused())

    async def _prepare(self) -> None:
        self._aside(self._beat_on())
        opened = await self._retrying(lambda: self.store.get(layout.opened(self.request.job_id, self.request.attempt)))
        if opened is None:
            self._error = "the attempt is not in the store"
            self.events.put_nowait(core.SetUpFailed())
            return
        file = msgspec.json.decode(opened, type=OpenFile)
        self.resumed, self.heads = file.resumes, file.heads
        self.timeline = replace(self.timeline, set_up_at=self.now())
        self.events.put_nowait(core.SetUp())

    async def _restore(self) -> None:
        if self.resumed is not None:
            found = await self._retrying(self._commits)
            for ref in checkpoints.stand_ins(self.resumed, self.heads, found):
                parts = await self._retrying(partial(self._read, ref.id))
                if parts is not None:
                    self.resumed, self.folder.parts = ref, parts
                    break
            else:
                self._error = f"checkpoint {self.resumed.id} is damaged; no older checkpoint is whole"
                self.events.put_nowait(core.SetUpFailed())
                return
        self.timeline = replace(self.timeline, restored_at=self.now())
        self.events.put_nowait(core.Restored())

    async def _commits(self) -> list[CheckpointRef]:
        job_id = self.request.job_id
        keys = [entry.key for entry in await self.store.list_keys(layout.checkpoints(job_id))]
        values = [await self.store.get(key) for key in checkpoints.committed(job_id, keys)]
        return [msgspec.json.decode(value, type=CheckpointRef) for value in values if value is not None]

    async def _read(self, name: str) -> dict[str, int] | None:
        """The files of a checkpoint; None when one is missing or has other bytes than were committed."""
        value = await self.store.get(layout.manifest(self.request.job_id, name))
        if value is None:
            return None
        parts: dict[str, int] = {}
        for file in msgspec.json.decode(value, type=Manifest).files:
            content = await self.store.get(layout.checkpoint_file(self.request.job_id, file.stored_in, file.path))
            if content is None or digest(content) != file.blake3:
                return None
            parts[file.path] = int(content)
        return parts

    def _start_training(self) -> None:
        self.training = Training(self.order.script, self.who, self.folder, self._exited)
        resumed = "" if self.resumed is None else self.resumed.id
        job_id, attempt = self.request.job_id, self.request.attempt
        self.net.note(TrainingBegan(self.net.loop.seconds, job_id, attempt, self.who.name, resumed, self.folder.step()))
        self.training.start()
        self._watching = self._aside(self._watch_folder())

    def _signal_training(self, name: str) -> None:
        if self.training is None or self.training.is_over:
            return
        job_id, attempt = self.request.job_id, self.request.attempt
        self.net.note(Signalled(self.net.loop.seconds, job_id, attempt, self.who.name, name))
        self.training.signal(name)

    def tell_to_stop(self, why: StopSeen, grace_s: float) -> None:
        """The runner learns that its script is to end."""
        job_id, attempt = self.request.job_id, self.request.attempt
        self.net.note(Told(self.net.loop.seconds, job_id, attempt, self.who.name, why.value, grace_s))
        self.events.put_nowait(core.StopWanted(why=why, grace_s=grace_s))

    def _exited(self, code: int | None, signal: str | None) -> None:
        self._code, self._signal = code, signal
        self.timeline = replace(self.timeline, exited_at=self.now())
        job_id, attempt = self.request.job_id, self.request.attempt
        ended_by_itself = code if self.training is not None and not self.training.was_told else None
        self.net.note(TrainingEnded(self.net.loop.seconds, job_id, attempt, self.who.name, ended_by_itself))
        self.events.put_nowait(core.Exited(code=code, signal=signal))

    async def _watch_folder(self) -> None:
        while not self._has_ended():
            await self.folder.changed.wait()
            self.folder.changed.clear()
            version = self.folder.version
            await self.who.sleep(_SETTLE_S)
            # The second file is still open for writing until it is there: nobody takes half a save for a whole one.
            if version != self.folder.version or self.folder.step() < 0 or self._has_ended():
                continue
            self._still_version = version
            while not await self._commit(version) and version == self.folder.version and not self._has_ended():
                await self.who.sleep(_RETRY_S)

    def _has_ended(self) -> bool:
        return self._code is not None or self._signal is not None

    def _may_commit(self) -> bool:
        return not self._suspended and not self._is_closed and self.now() < self.run.lease_until

    async def _commit(self, version: int) -> bool:
        """Copy, check again, mark; False: not this time, and nothing of it can be seen, unless its marker went unanswered."""
        if not self._may_commit():
            return False
        job_id = self.request.job_id
        try:
            if self._unanswered is not None:
                await self._mark(self._unanswered)
            self._seq += 1
            name = layout.checkpoint_id(self.request.attempt, self._seq)
            taken_at, step, files = self.now(), self.folder.step(), []
            for path in sorted(self.folder.parts):
                content = str(self.folder.parts[path]).encode()
                await self.store.put(layout.checkpoint_file(job_id, name, path), content)
                files.append(ManifestFile(path=path, size_bytes=len(content), blake3=digest(content), stored_in=name))
            if self.folder.version != version:
                return False
            manifest = Manifest(id=name, taken_at=taken_at, step=step, files=files)
            await self.store.put(layout.manifest(job_id, name), msgspec.json.encode(manifest))
            if not self._may_commit():
                return False
            await self._mark(CheckpointRef(id=name, taken_at=taken_at, committed_at=self.now(), step=step, files=len(files)))
        except StoreError:
            return False
        self._committed_version = version
        await self._prune()
        return True

    async def _mark(self, ref: CheckpointRef) -> None:
        self._unanswered = ref
        await self.store.put_if_absent(layout.commit(self.request.job_id, ref.id), msgspec.json.encode(ref))
        self.newest, self._unanswered = ref, None

    async def _prune(self) -> None:
        """As runner/committer.py: the newest stay, and what a newer attempt wrote is not ours to remove."""
        if not self._may_commit():
            return
        job_id = self.request.job_id
        try:
            keys = [entry.key for entry in await self.store.list_keys(layout.checkpoints(job_id))]
            kept = checkpoints.kept(job_id, keys, self.order.keep, self.request.attempt)
            for key in () if kept is None else checkpoints.removable(job_id, keys, kept, ()):
                await self.store.delete_prefix(key)
        except StoreError:
            return

    async def _beat_on(self) -> None:
        while self.run.state is not core.RunState.DONE and not self._is_closed:
            await self._beat()
            await self.who.sleep(self.request.heartbeat_s)

    async def _beat(self) -> None:
        job_id, attempt = self.request.job_id, self.request.attempt
        at = self.now()
        until = at + timedelta(seconds=self.request.attempt_lease_s)
        try:
            value = await self.store.get(layout.order(job_id, attempt))
            order = None if value is None else msgspec.json.decode(value, type=OrderFile)
            if order is not None and order.kind is OrderKind.CLOSE:
                self.events.put_nowait(core.FoundClosed())
                return
            if order is not None:
                self.tell_to_stop(StopSeen.ORDER, order.grace_s)
            beat = Heartbeat(
                at=at, lease_until=until, state=self.run.state.value, timeline=self.timeline, commit=self.newest, step=self._step()
            )
            await self.store.put(layout.heartbeat(job_id, attempt), msgspec.json.encode(beat))
            self.events.put_nowait(core.LeaseRenewed(until))
            await self._flush()
        except StoreError:
            return

    def _step(self) -> int | None:
        return None if self.training is None else self.training.step

    async def _flush(self) -> None:
        """The next piece of the log; a piece that was stored though nobody said so is stored again, the same."""
        async with self._flushing:
            step = self._step() or 0
            if not self._pending_chunk:
                self._pending_chunk = "".join(f"step {n}\n" for n in range(self._logged + 1, step + 1)).encode()
                self._logged = step
            if not self._pending_chunk or self._is_closed:
                return
            key = layout.chunk(layout.log_prefix(self.request.job_id, self.request.attempt), self._chunk + 1)
            await self.store.put(key, self._pending_chunk)
            self.net.note(Flushed(self.net.loop.seconds, key, self._pending_chunk))
            self._chunk, self._pending_chunk = self._chunk + 1, b""

    async def _upload(self) -> None:
        if self._watching is not None:
            self.folder.changed.set()
            await asyncio.wait({self._watching})
        while self._unanswered is not None and not self._is_closed:
            try:
                await self._mark(self._unanswered)
            except StoreError:
                await self.who.sleep(_RETRY_S)
        if self._trusted is not None:
            trusted = self._trusted or self.folder.version == self._still_version
            version = self.folder.version
            wanted = trusted and version != self._committed_version and self.folder.step() > 0
            while wanted and not self._is_closed and not await self._commit(version):
                await self.who.sleep(_RETRY_S)
        while not self._is_closed:
            try:
                await self._flush()
                break
            except StoreError:
                await self.who.sleep(_RETRY_S)
        self.timeline = replace(self.timeline, uploaded_at=self.now())
        self.events.put_nowait(core.Uploaded())

    async def _write_exit(self) -> None:
        report = ExitReport(
            timeline=self.timeline,
            code=self._code,
            signal=self._signal,
            stop_seen=self.run.stop_seen,
            set_up_error=self._error,
            commit=self.newest,
            step=self._step(),
        )
        key = layout.exit_record(self.request.job_id, self.request.attempt)
        await self._retrying(lambda: self.store.put(key, msgspec.json.encode(report)))


def digest(content: bytes) -> str:
    """The hash of a simulated file."""
    return blake2b(content, digest_size=8).hexdigest()
