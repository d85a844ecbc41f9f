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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.adapters.home_folder import HomeFolder
from trainmaster.adapters.object_store import AsyncDoor, open_store
from trainmaster.adapters.system_clock import SystemClock
from trainmaster.config import Config, read_config
from trainmaster.control.observe import Ports
from trainmaster.control.service import Service
from trainmaster.control.studies import Studies
from trainmaster.control.work_queue import WorkQueue
from trainmaster.core.compare import FileChange
from trainmaster.core.facts import Timing
from trainmaster.core.job import Code, JobId, JobRecord, Outcome
from trainmaster.core.schedule import Capacity
from trainmaster.core.submission import new_job
from trainmaster.errors import InvalidConfig, TrainmasterError
from trainmaster.ports.database import WorkLease
from trainmaster.ports.object_store import BlockingStore
from trainmaster.ports.provider import Provider
from trainmaster.spec import layout
from trainmaster.spec.job_spec import JobSpec

if TYPE_CHECKING:
    from trainmaster.adapters.environments.housekeeping import EnvironmentHouse
    from trainmaster.adapters.environments.submission import SubmittedEnvironment
    from trainmaster.control.house import House
    from trainmaster.core.house import Usage, Wish

_DRIVER_LEASE_S = 15.0
_POLL_S_MIN, _POLL_S_MAX = 0.05, 0.5
#: how often to see whether somebody drives
_DRIVEN_S = 1.0

T = TypeVar("T")

Wrap = Callable[[Provider], Provider]


class Submission(Struct, frozen=True, kw_only=True):
    """What was accepted, and what the submitter should know about it."""

    job: JobRecord
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


class Snapshot(Struct, frozen=True, kw_only=True):
    """What was kept of a source folder, and what the submitter should know about it."""

    code: Code
    #: name of the wheels that were staged
    wheelhouse: str = ""
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
        snapshot = self.snapshot(spec, folder, environ, progress)
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
        try:
            self.keep_environment(job.id, environ)
            return await self.service.accept(seeded(job))
        except BaseException as error:
            await self.take_back(job.id)
            accepted = await self.ports.database.load(job.id) if isinstance(error, KeyboardInterrupt) else None
            if accepted is None:
                raise
            return accepted  # it was, before the interrupt: then it is a job
        finally:
            self.held.close()

    async def take_back(self, job_id: JobId) -> None:
        """Nothing is left of a submission that did not become a job; where nobody can tell whether it did, all is left."""
        with suppress(TrainmasterError, OSError):
            if await self.ports.database.load(job_id) is None:
                await self.ports.store.delete_prefix(layout.job(job_id))
                self._environment_file(job_id).unlink(missing_ok=True)  # last: it is how keeping house finds what is left

    def snapshot(
        self, spec: JobSpec, folder: Path, environ: Mapping[str, str], progress: Callable[[str, int, int], None]
    ) -> Snapshot:
        """Keep in the store what the job needs of this machine: its code, and the wheels of its environment."""
        from trainmaster.adapters.environments.submission import SubmittedEnvironment

        asked = SubmittedEnvironment(spec.environment, folder, environ)
        asked.refuse_impossible(self.config.home_path)
        if spec.in_place:
            snapshot = Snapshot(code=Code(folder=str(folder), in_place=True))
        else:
            snapshot = self._packed(folder, environ, asked, progress)
        return replace(snapshot, wheelhouse=asked.stage_wheels(self.store, progress), notes=(*snapshot.notes, *asked.notes()))

    def _packed(
        self,
        folder: Path,
        environ: Mapping[str, str],
        asked: SubmittedEnvironment,
        progress: Callable[[str, int, int], None],
    ) -> Snapshot:
        from trainmaster.adapters.source_archive import pack
        from trainmaster.adapters.source_folder import list_source

        listing = list_source(
            folder,
            user_home=Path(environ.get("HOME") or "/nonexistent"),
            trainmaster_home=self.config.home_path,
            size_limit_bytes=self.config.source_bytes_max,
        )
        asked.refuse_left_out(file.path for file in listing.files)
        archive = self._packing_place()
        done = [0]

        def packed_bytes(count: int) -> None:
            done[0] += count
            progress("packing", done[0], listing.total_bytes)

        try:
            packed = pack(listing, folder, archive, packed_bytes)
            self.held.enter_context(self.home.submitting())
            self.store.move_file(layout.code(packed.sha256), archive)
        finally:
            archive.unlink(missing_ok=True)
        code = Code(
            sha256=packed.sha256,
            size_bytes=packed.size_bytes,
            files=len(listing.files),
            commit=listing.commit,
            dirty=listing.is_dirty,
            folder=str(folder),
            left_out=[item.path for item in listing.left_out],
        )
        return Snapshot(code=code, left_out=tuple((item.path, item.why) for item in listing.left_out), notes=listing.notes)

    def code_changes(self, one: Code, other: Code) -> list[FileChange]:
        """What differs between two snapshots; a UserError where there is nothing to compare."""
        from trainmaster.adapters.source_diff import changes_between

        return changes_between(self.store, one, other)

    @property
    def environments(self) -> EnvironmentHouse:
        """Environments that were built on this machine."""
        from trainmaster.adapters.environments.housekeeping import EnvironmentHouse

        return EnvironmentHouse(self.config.home_path)

    def _packing_place(self) -> Path:
        """A new file to pack into. Whoever was killed while it packed has left one: a day later it goes."""
        folder = self.config.home_path / "packing"
        folder.mkdir(parents=True, exist_ok=True)
        day_ago_s = (self.ports.clock.now() - timedelta(days=1)).timestamp()
        for file in folder.iterdir():
            with suppress(FileNotFoundError):  # others are done with theirs at any moment
                if file.stat().st_mtime < day_ago_s:
                    file.unlink()
        return folder / f"{secrets.token_hex(8)}.tar.zst"

    def keep_environment(self, job_id: JobId, environ: Mapping[str, str]) -> None:
        """The submitter's environment may hold secrets: it stays on this machine, readable by its owner, until the job is over."""
        path = self._environment_file(job_id)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            json.dump({k: v for k, v in environ.items() if not k.startswith("TRAINMASTER_")}, file)

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
            if keeping is not None:
                await keeping
            await database.let_go(lease)
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


@asynccontextmanager
async def opened(config: Config | None = None, wrap: Wrap | None = None) -> AsyncIterator[Embedded]:
    """Open database and store in the home folder. `wrap` lets tests and demos stand between us and the machines."""
    from trainmaster.adapters.providers.local.provider import LocalProvider

    config = config or read_config(os.environ)
    home = config.home_path
    with contextlib.suppress(OSError):  # whoever opens it next says what is wrong
        home.mkdir(parents=True, exist_ok=True, mode=0o700)  # specs and logs are their owner's
    database = SqliteDatabase.open(home / "trainmaster.db", busy_s_max=config.database_wait_s)
    try:
        store = _open_store(config)
        local: Provider = LocalProvider(
            home / "machines", home / "environments", _slots(config), inputs_bytes_max=config.inputs_bytes_max
        )
        providers = {"local": wrap(local) if wrap is not None else local, "simulated": _simulated(config)}
        timing = Timing(attempt_lease_s=config.attempt_lease_s, lease_margin_s=config.attempt_lease_s / 2, look_s=config.look_s)
        ports = Ports(
            clock=SystemClock(),
            database=database,
            store=AsyncDoor(store),
            store_url=store.url,
            providers=providers,
            timing=timing,
            heartbeat_s=config.heartbeat_s,
            owner=f"{os.uname().nodename}:{os.getpid()}:{secrets.token_hex(4)}",
        )
        yield Embedded(config, ports, store)
    finally:
        await database.close()


def _simulated(config: Config) -> Provider:
    """A fleet of pretended machines; nothing of it is loaded before a job asks for it."""
    from trainmaster.adapters.late_provider import LateProvider

    folder = config.home_path / "simulated"

    def open_provider() -> Provider:
        from trainmaster.adapters.providers.simulated.client import FEATURES, LaptopFleet
        from trainmaster.adapters.providers.simulated.fate import FleetSettings
        from trainmaster.adapters.providers.simulated.provider import SimulatedProvider

        settings = FleetSettings(
            machines=config.simulated_machines,
            boot_s=config.simulated_boot_s,
            preempt_s=config.simulated_preempt_s,
            notice_s=config.simulated_notice_s,
        )
        environments, bytes_max = config.home_path / "environments", config.inputs_bytes_max
        return SimulatedProvider(LaptopFleet(folder, environments, settings, inputs_bytes_max=bytes_max), FEATURES)

    return LateProvider("simulated", open_provider, folder.exists)


def _open_store(config: Config) -> BlockingStore:
    """One home, one store: jobs of this home are driven by whoever comes next, and must be found where they were put.

    A store that was here once is not made anew: an unmounted disk would be taken for an empty one, and hidden by it.
    """
    if config.store.startswith("memory:"):
        raise InvalidConfig("store: memory:// is gone when this command ends", hint="use a folder or a bucket")
    # A home that keeps its own store may be moved.
    given = "" if config.store_url == str(config.home_path / "store") else config.store
    note = config.home_path / "store.url"
    known = note.read_text() if note.exists() else None
    if known is not None and known != given:
        said = known or "the folder `store` in it"
        hint = "set TRAINMASTER_HOME to another folder for another store"
        raise InvalidConfig(f"store: {config.home} keeps its jobs in {said}", hint=hint)
    store = open_store(config.store_url, create=known is None)
    if known is None:
        fresh = note.with_name(f"store.url.{secrets.token_hex(4)}")
        fresh.write_text(given)
        fresh.replace(note)
    return store


def submit_job(spec: JobSpec | Mapping[str, object], folder: str | Path = ".") -> JobId:
    """For notebooks and scripts: submit a job with the code in `folder` and return its id; it runs in the background.

    The spec is a JobSpec or what a job file would hold, such as `{"command": "python train.py"}`. What is wrong with it, or can
    never run here, is a UserError.
    """

    from trainmaster.spec.parse import spec_from_mapping

    checked = spec if isinstance(spec, JobSpec) else spec_from_mapping(spec)
    source = Path(folder).absolute()

    async def inside() -> JobId:
        async with opened() as embedded:
            submission = await embedded.submit(replace(checked, source_dir=str(source)), source, os.environ, lambda *_: None)
            await embedded.ensure_driven()
            return submission.job.id

    return _run_here(inside())


def wait_for(job_id: str, timeout_s: float | None = None) -> JobRecord:
    """For notebooks and scripts: the record of a job that has finished; TimeoutError when it has not by then."""

    async def inside() -> JobRecord:
        async with opened() as embedded, asyncio.timeout(timeout_s):
            return await embedded.until_finished(await embedded.service.resolve(job_id))

    return _run_here(inside())


def _run_here(coroutine: Coroutine[object, object, T]) -> T:
    """Run to the end; in a thread of its own where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as aside:
        return aside.submit(asyncio.run, coroutine).result()


def exit_code(job: JobRecord) -> int:
    """What `run` and `wait` answer: 0 succeeded, 1 failed, 3 stopped."""
    return {Outcome.SUCCEEDED: 0, Outcome.FAILED: 1, Outcome.STOPPED: 3, None: 4}[job.outcome]


def _slots(config: Config) -> Capacity | None:
    if config.cpus is None and config.memory is None and config.gpus is None:
        return None
    from trainmaster.adapters import host

    return Capacity(
        cpus=config.cpus if config.cpus is not None else host.cpu_count(),
        memory=config.memory if config.memory is not None else host.memory_bytes(),
        gpus=tuple(range(config.gpus)) if config.gpus is not None else host.gpu_indexes(),
    )


def seeded(job: JobRecord) -> JobRecord:
    """The job with a seed by chance, unless it has one."""
    return job if job.seed is not None else replace(job, seed=secrets.randbelow(2**31))


def make_id(name: str) -> JobId:
    """Readable, and new: the name and five letters by chance."""
    letters = "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower())[:28].strip("-")
    return JobId(f"{letters or 'job'}-{''.join(secrets.choice('abcdefghjkmnpqrstuvwxyz23456789') for _ in range(5))}")


async def _driver() -> None:
    async with opened() as embedded:
        await embedded.be_the_driver()


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        asyncio.run(_driver())
    except TrainmasterError as error:
        sys.exit(f"driver: {error.sentence}")
