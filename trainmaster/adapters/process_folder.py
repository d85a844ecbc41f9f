"""How does a process of ours that outlives us live in a folder? Started with a lock that ends with it, found again, ended.

Providers whose machines are processes of this machine share this. The lock travels through exec (docs/decisions/0003); a process
number counts only together with its start and the boot.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from trainmaster.adapters import host
from trainmaster.core.job import ALLOCATION_MARK
from trainmaster.ports.provider import LaunchFile

#: Optional fields of a spec that the runner serves by itself, on whatever machine it runs.
RUNNER_FEATURES = frozenset(
    {
        "inputs",
        "environment.python",
        "environment.requirements",
        "environment.conda",
        "environment.setup",
        "environment.index",
        "environment.wheels",
    }
)
_KILL_ROUNDS = 50
_POLL_S = 0.2


class ProcessFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """process.json: which process was started for an allocation; a number alone would be somebody else's after a while."""

    pid: int
    start: str
    boot: str
    host: str


def start(
    place: Path, program: str, launch: LaunchFile, log: str, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes] | None:
    """Start `python -m PROGRAM PLACE LOCK`, unless something lives there; None then. The lock is never free between our asking and
    its living."""
    try:
        return _start(place, program, launch, log, environ or {})
    except OSError:
        if launch.cgroup:
            host.drop_cgroup(Path(launch.cgroup))  # nobody could write down that it was made
        raise


def _start(place: Path, program: str, launch: LaunchFile, log: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = host.try_lock(place / "lock", create=True)
    if lock is None:
        return None
    try:
        (place / "launch.json").write_bytes(msgspec.json.encode(launch))
        with open(place / log, "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", program, str(place), str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(lock,),
                cwd="/",
                env={**host.own_environment(), **environ},
            )
    finally:
        os.close(lock)


def write_process(path: Path, pid: int) -> None:
    """Write down which process it is."""
    record = ProcessFile(pid=pid, start=host.process_start(pid), boot=host.boot_id(), host=os.uname().nodename)
    write_whole(path, msgspec.json.encode(record))


def read_process(path: Path) -> ProcessFile | None:
    """Which process was written down; None where nobody did, or a power cut tore it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=ProcessFile)
    return None


def is_there(process: ProcessFile) -> bool:
    """Whether the number still means the process that was started; after a restart of the machine it means another."""
    return process.boot == host.boot_id() and host.is_same_process(process.pid, process.start)


def is_locked(place: Path) -> bool:
    """Whether the process that was started there lives."""
    try:
        return host.is_locked(place / "lock")
    except (FileNotFoundError, NotADirectoryError):
        return False


def processes_of(place: Path) -> tuple[int, ...]:
    """What lives of a job, wherever it went: by its mark, which a process may lose, and by its cgroup, where there is one."""
    cgroup = cgroup_of(place)
    found = {
        *host.marked_processes(ALLOCATION_MARK, place.name),
        *(host.cgroup_processes(cgroup) if cgroup is not None else ()),
    }
    return tuple(sorted(found))


def cgroup_of(place: Path) -> Path | None:
    """The control group made for an allocation; known before its process is."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        name = msgspec.json.decode((place / "launch.json").read_bytes(), type=LaunchFile).cgroup
        return Path(name) if name else None
    return None


def end_all(place: Path, reap: Callable[[], None]) -> bool:
    """End every process of an allocation; False if something would not die."""
    process, cgroup = read_process(place / "process.json"), cgroup_of(place)
    for _ in range(_KILL_ROUNDS):
        if process is not None and is_there(process):
            host.kill_all([process.pid], signal.SIGKILL)
        group_is_gone = cgroup is None or host.end_cgroup(cgroup)
        reap()
        is_clean = (place / "clean").exists() and not is_locked(place)
        leftovers = () if is_clean else processes_of(place)
        host.kill_all(leftovers, signal.SIGKILL)
        if group_is_gone and not leftovers and not is_locked(place):
            return True
        pause()
    return False


def nudge(process: ProcessFile | None) -> None:
    """Let a runner look for orders now; one that does not listen yet would die of the signal, and will look by itself."""
    if process is not None and is_there(process) and host.catches(process.pid, signal.SIGUSR1):
        host.kill_all([process.pid], signal.SIGUSR1)


async def wait_end(path: Path) -> None:
    """Until the process written down there ends; where the kernel cannot tell, a moment."""
    import asyncio

    descriptor = _descriptor(path)
    if descriptor is None:
        await asyncio.sleep(_POLL_S)  # early is allowed; the step that follows looks for itself
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _descriptor(path: Path) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there is none. The caller closes it."""
    process = read_process(path)
    if process is None or not hasattr(os, "pidfd_open"):
        return None
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        if is_there(process):
            return descriptor
        os.close(descriptor)
    return None


def last_words(path: Path) -> str:
    """The last line of a process's own log; the log goes with the folder, so this is what remains of it."""
    try:
        lines = path.read_bytes()[-4096:].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


def folders(parent: Path) -> list[str]:
    """Every allocation with a folder, in order of name."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(entry.name for entry in os.scandir(parent) if entry.is_dir())
    return []


def write_whole(path: Path, value: bytes) -> None:
    """Write a file that is never seen half."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_bytes(value)
    os.replace(temporary, path)


def pause() -> None:
    """Between two looks at processes that are to end."""
    import time

    time.sleep(0.02)
