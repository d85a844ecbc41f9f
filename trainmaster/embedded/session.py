"""How does one person use Trainmaster without a server? SQLite, a folder, local machines, the same control loop.

Whoever submits with `run` drives the loop inside the command. Work that nobody watches is driven by a background driver: started
when a command finds unfinished jobs and nobody driving, one at a time by a work lease, gone when nothing is left. Both may be
killed at any moment; jobs go on, and the next command picks them up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.adapters.home_folder import HomeFolder
from trainmaster.config import Config
from trainmaster.control.observe import Ports
from trainmaster.control.service import Service
from trainmaster.control.studies import Studies
from trainmaster.control.work_queue import WorkQueue
from trainmaster.core.compare import FileChange
from trainmaster.core.job import Code, JobId, JobRecord, Outcome
from trainmaster.core.submission import new_job
from trainmaster.embedded.snapshot import take_snapshot
from trainmaster.errors import Refused, TrainmasterError
from trainmaster.ports.database import WorkLease
from trainmaster.ports.object_store import BlockingStore
from trainmaster.ports.provider import Provider
from trainmaster.spec import layout
from trainmaster.spec.job_spec import JobSpec

if TYPE_CHECKING:
    from trainmaster.adapters.environments.housekeeping import EnvironmentHouse
    from trainmaster.control.house import House
    from trainmaster.core.house import Usage, Wish

_DRIVER_LEASE_S = 15.0
_POLL_S_MIN, _POLL_S_MAX = 0.05, 0.5
#: how often to see whether somebody drives
_DRIVEN_S = 1.0

T = TypeVar("T")


class Submission(Struct, frozen=True, kw_only=True):
    """What was accepted, and what the submitter should know about it."""

    job: JobRecord
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


class Embedded:
    """Everything one command needs; made by `opened`."""

    def __init__(self, config: Config, ports: Ports, store: BlockingStore) -> None:
        self.config, self.ports, self.store = config, ports, store
        self.service = Service(ports)
        self.studies = Studies(ports, self.service)
        own_store = config.home_path / "store" if config.store_url == str(config.home_path / "store") else None
        memories = config.home_path / "simulated" / "ended"
        self.home = HomeFolder(config.home_path, lambda: ports.clock.now().timestamp(), store=own_store, memories=memories)
        #: from storing code until its job is remembered: nobody may think that nobody needs it
        self.held = contextlib.ExitStack()

    @property
    def house(self) -> House:
        """Deleting, pruning, and what takes how much room."""
        from trainmaster.control.house import House

        return House(self.ports, self.home)

    @property
    def this_machine(self) -> Provider:
        """Who has the machine we run on."""
        return self.ports.providers["local"]

    async def usage(self, only: Sequence[JobId]) -> Usage:
        """What takes how much room: everything, or the jobs named."""
        from trainmaster.control.usage import usage

        return await usage(self.ports, only, {} if only else self.home.sizes())

    @property
    def retention(self) -> Wish | None:
        """What the settings say may go by itself."""
        if self.config.retention_older_than is None:
            return None
        from trainmaster.core.house import Wish

        return Wish(older_than_s=self.config.retention_older_than, keep_models=self.config.retention_keep_models)

    async def submit(
        self, spec: JobSpec, folder: Path, environ: Mapping[str, str], progress: Callable[[str, int, int], None]
    ) -> Submission:
        """Pack the source folder, keep the snapshot, accept the job."""
        from trainmaster import __version__
        from trainmaster.adapters.submitter import find_origin, refuse_no_script

        spec = await self.admitted(spec)
        origin = find_origin(environ, Path.cwd(), __version__)
        refuse_no_script(spec, folder, origin.python)
        snapshot = take_snapshot(self, spec, folder, environ, progress)
        job = new_job(make_id(spec.name), spec, snapshot.code, origin, self.ports.clock.now())
        job = await self.accept(replace(job, wheelhouse=snapshot.wheelhouse), environ)
        return Submission(job=job, left_out=snapshot.left_out, notes=snapshot.notes)

    async def admitted(self, spec: JobSpec) -> JobSpec:
        """Say no before anything is stored; the spec as it will be kept, with data that are found from everywhere."""
        await self.service.refuse_impossible(spec)
        if not spec.inputs:
            return spec
        from trainmaster.adapters.inputs.submission import settled

        return settled(spec, Path.cwd())

    async def accept(self, job: JobRecord, environ: Mapping[str, str]) -> JobRecord:
        """Keep the submitter's environment and accept the job, with a seed if it has none."""
        with self.keeping_environment(job.id, environ):
            try:
                return await self.service.accept(seeded(job))
            except BaseException as error:
                accepted = await self.after_all(job.id, error)
                if accepted is None:
                    raise
                return accepted

    async def after_all(self, job_id: JobId, error: BaseException) -> JobRecord | None:
        """After an error: nothing is left of what did not become a job. If it became one before an interrupt, that job."""
        await self._take_back(job_id)
        return await self.ports.database.load(job_id) if isinstance(error, KeyboardInterrupt) else None

    async def _take_back(self, job_id: JobId) -> None:
        """Where nobody can tell whether it became a job, all is left."""
        with suppress(TrainmasterError, OSError):
            if await self.ports.database.load(job_id) is None:
                await self.ports.store.delete_prefix(layout.job(job_id))
                self.forget_environment(job_id)  # last: it is how keeping house finds what is left

    def code_changes(self, one: Code, other: Code) -> list[FileChange]:
        """What differs between two snapshots; a UserError where there is nothing to compare."""
        from trainmaster.adapters.source_diff import changes_between

        return changes_between(self.store, one, other)

    @property
    def environments(self) -> EnvironmentHouse:
        """Environments that were built on this machine."""
        from trainmaster.adapters.environments.housekeeping import EnvironmentHouse

        return EnvironmentHouse(self.config.home_path)

    @contextlib.contextmanager
    def keeping_environment(self, job_id: JobId, environ: Mapping[str, str]) -> Iterator[None]:
        """Inside, the job is accepted; what was held for it is let go at the end.

        The submitter's environment may hold secrets: it stays on this machine, readable by its owner, until the job is over. One
        that is there already is somebody else's, and is left alone.
        """
        with self.held:
            path = self._environment_file(job_id)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                raise Refused(f"{job_id} is being submitted already", hint=f"`trainmaster show {job_id}` shows it") from None
            try:
                with open(descriptor, "w") as file:
                    json.dump({k: v for k, v in environ.items() if not k.startswith("TRAINMASTER_")}, file)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            yield

    def forget_environment(self, job_id: JobId) -> None:
        """Nobody needs it any more."""
        self._environment_file(job_id).unlink(missing_ok=True)

    def _environment_file(self, job_id: JobId) -> Path:
        return self.config.home_path / "environments" / f"{job_id}.json"

    @property
    def user(self) -> str:
        """Who gives the commands."""
        from trainmaster.adapters.submitter import user_name

        return user_name()

    async def drive(self, is_over: Callable[[], Awaitable[bool]]) -> None:
        """Work on every job there is until `is_over`."""
        from trainmaster.adapters.presence import present

        await self._end_leases_of_the_dead()
        with present(self._drivers, self.ports.owner):
            await WorkQueue(self.ports).drive(is_over)
        await self._forget_environments()

    @property
    def _drivers(self) -> Path:
        return self.config.home_path / "drivers"

    async def _end_leases_of_the_dead(self) -> None:
        """Who was killed while it drove holds leases for a while; its lock tells sooner."""
        from trainmaster.adapters.presence import forget, gone

        for owner in gone(self._drivers, os.uname().nodename):
            await self.ports.database.end_leases(owner, self.ports.clock.now())
            forget(self._drivers, owner)

    async def ensure_driven(self) -> bool:
        """If something is left to do and nobody does it, start the background driver; whether one was started."""
        due = await self.ports.database.next_wake()
        if due is None and (self.retention is None or not await self.house.is_due(self.retention)):
            return False
        await self._end_leases_of_the_dead()
        # Only a look: a lease taken for a moment would be seen by others as somebody driving. Several may start one now; the lease
        # that it takes lets one of them stay.
        if await self.ports.database.holder("driver", self.ports.clock.now()) is not None:
            return False
        self._start_driver()
        return True

    async def until_finished(self, job_id: JobId) -> JobRecord:
        """Wait for a job's end. Whoever drives may be killed while we wait: then another is started."""
        waited_s = driven_s = 0.0
        while not (job := await self.service.get(job_id)).is_finished:
            if waited_s >= driven_s:
                await self.ensure_driven()
                driven_s = waited_s + _DRIVEN_S
            # A twentieth of the time it took so far is not missed, and the job's processor is not ours.
            pause_s = min(_POLL_S_MAX, max(_POLL_S_MIN, waited_s / 20))
            await asyncio.sleep(pause_s)
            waited_s += pause_s
        return job

    def _start_driver(self) -> None:
        import subprocess

        from trainmaster.adapters import host

        log = self.config.home_path / "driver.log"
        with open(log, "ab") as output:
            subprocess.Popen(
                [sys.executable, "-P", "-m", "trainmaster.embedded"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
                # It stands in another folder; so addresses that were relative to ours are absolute now.
                env={**host.own_environment(), "TRAINMASTER_HOME": self.config.home, "TRAINMASTER_STORE": self.config.store_url},
            )

    async def be_the_driver(self) -> None:
        """Drive until nothing is left for a while; leave at once if somebody else drives."""
        lease = WorkLease(name="driver", owner=self.ports.owner)
        clock, database = self.ports.clock, self.ports.database
        leave = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave.set)
        await self._end_leases_of_the_dead()
        if not await database.hold(lease, clock.now(), clock.now() + timedelta(seconds=_DRIVER_LEASE_S)):
            return
        idle_since = held_at = clock.now()

        async def is_over() -> bool:
            nonlocal idle_since, held_at
            now = clock.now()
            if abs(now - held_at) > timedelta(seconds=_DRIVER_LEASE_S / 5):
                held_at = now
                if not await database.hold(lease, now, now + timedelta(seconds=_DRIVER_LEASE_S)):
                    return True  # we were paused past our lease and somebody took over
            if await database.next_wake() is not None:
                idle_since = now
            return leave.is_set() or now - idle_since > timedelta(seconds=self.config.driver_idle_s)

        over, wish = asyncio.Event(), self.retention
        keeping = None if wish is None else asyncio.create_task(self.house.keep(wish, over))
        try:
            await self.drive(is_over)
        finally:
            over.set()
            try:
                await database.let_go(lease)  # at once: keeping house may take long, and nobody drives meanwhile
            finally:
                if keeping is not None:
                    await keeping
        if not leave.is_set():
            # A job may have been submitted between our last look and letting go; its command saw us driving and started nobody.
            await self.ensure_driven()

    async def _forget_environments(self) -> None:
        folder = self.config.home_path / "environments"
        files = sorted(folder.glob("*.json")) if folder.exists() else []
        unfinished = await self.ports.database.unfinished() if files else []
        needed = {job.study.batch for job in unfinished if job.study is not None}
        for file in files:
            job = await self.ports.database.load(JobId(file.stem))
            if job is not None and job.is_finished and job.id not in needed:
                file.unlink(missing_ok=True)


def exit_code(job: JobRecord) -> int:
    """What `run` and `wait` answer: 0 succeeded, 1 failed, 3 stopped."""
    return {Outcome.SUCCEEDED: 0, Outcome.FAILED: 1, Outcome.STOPPED: 3, None: 4}[job.outcome]


def seeded(job: JobRecord) -> JobRecord:
    """The job with a seed by chance, unless it has one."""
    return job if job.seed is not None else replace(job, seed=secrets.randbelow(2**31))


def make_id(name: str) -> JobId:
    """Readable, and new: the name and five letters by chance."""
    letters = "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower())[:28].strip("-")
    return JobId(f"{letters or 'job'}-{''.join(secrets.choice('abcdefghjkmnpqrstuvwxyz23456789') for _ in range(5))}")
