"""How are runner processes started, found and ended on this machine? Folders, locks and signals; nothing is decided here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from trainmaster.adapters import host
from trainmaster.adapters.providers.local.translate import Found, LaunchFile, ProcessFile
from trainmaster.core.job import ALLOCATION_MARK

_KILL_ROUNDS = 50


class LocalClient:
    """The machines folder: one folder per allocation."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, launch_file: bytes) -> bool:
        """Start a runner, unless one lives under this name; False then. The lock travels to it through exec, so it is never free
        between our asking and its living."""
        place = self._folder / name
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = host.try_lock(place / "lock", create=True)
        if lock is None:
            return False
        try:
            (place / "launch.json").write_bytes(launch_file)
            with open(place / "runner.log", "ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-P", "-m", "trainmaster.runner", str(place), str(lock)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(lock,),
                    cwd="/",
                    env=host.own_environment(),
                )
        finally:
            os.close(lock)
        self._children.append(child)
        record = ProcessFile(
            pid=child.pid,
            start=host.process_start(child.pid),
            boot=host.boot_id(),
            host=os.uname().nodename,
        )
        _write_whole(place / "process.json", msgspec.json.encode(record))
        return True

    def find(self, name: str) -> Found:
        """What there is of an allocation."""
        self._reap()
        place = self._folder / name
        process = _process(place)
        is_locked = _is_locked(place)
        is_clean = (place / "clean").exists()
        was_begun = (place / "launch.json").exists()
        leftovers = _processes_of(name, _cgroup(place)) if was_begun and not is_locked and not is_clean else ()
        state = host.process_state(process.pid) if process is not None and is_locked else ""
        return Found(
            process=process,
            is_locked=is_locked,
            leftovers=leftovers,
            state=state,
            boot=host.boot_id(),
            host=os.uname().nodename,
            last_words="" if is_locked or is_clean else _last_words(place),
        )

    def end(self, name: str) -> bool:
        """End every process of an allocation and remove its folder; False if something would not die."""
        place = self._folder / name
        if not place.exists():
            return True
        process, cgroup = _process(place), _cgroup(place)
        for _ in range(_KILL_ROUNDS):
            if process is not None and _is_there(process):
                host.kill_all([process.pid], signal.SIGKILL)
            group_is_gone = cgroup is None or host.end_cgroup(cgroup)
            self._reap()
            clean = (place / "clean").exists() and not _is_locked(place)
            leftovers = () if clean else _processes_of(name, cgroup)
            host.kill_all(leftovers, signal.SIGKILL)
            if group_is_gone and not leftovers and not _is_locked(place):
                shutil.rmtree(place, ignore_errors=True)
                return True
            _pause()
        return False

    def nudge(self, name: str) -> None:
        """Let the runner look for orders now."""
        process = _process(self._folder / name)
        if process is not None and _is_locked(self._folder / name) and _is_there(process):
            host.kill_all([process.pid], signal.SIGUSR1)

    def names(self) -> list[str]:
        """Every allocation with a folder."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(entry.name for entry in os.scandir(self._folder) if entry.is_dir())
        return []

    def process_descriptor(self, name: str) -> int | None:
        """A descriptor that becomes readable when the runner ends; None where there is none. The caller closes it."""
        process = _process(self._folder / name)
        if process is None or not hasattr(os, "pidfd_open"):
            return None
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            if _is_there(process):
                return descriptor
            os.close(descriptor)
        return None

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _process(place: Path) -> ProcessFile | None:
    try:
        return msgspec.json.decode((place / "process.json").read_bytes(), type=ProcessFile)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_there(process: ProcessFile) -> bool:
    """Whether the number still means the process that was started; after a restart of the machine it means another."""
    return process.boot == host.boot_id() and host.is_same_process(process.pid, process.start)


def _cgroup(place: Path) -> Path | None:
    """The control group made for an allocation; known before its process is."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        name = msgspec.json.decode((place / "launch.json").read_bytes(), type=LaunchFile).cgroup
        return Path(name) if name else None
    return None


def _processes_of(name: str, cgroup: Path | None) -> tuple[int, ...]:
    """What lives of a job, wherever it went: by its mark, which a process may lose, and by its cgroup, where there is one."""
    found = {*host.marked_processes(ALLOCATION_MARK, name), *(host.cgroup_processes(cgroup) if cgroup is not None else ())}
    return tuple(sorted(found))


def _last_words(place: Path) -> str:
    """The last line of the runner's own log; the log goes with the folder, so this is what remains of it."""
    try:
        lines = (place / "runner.log").read_bytes()[-4096:].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


def _is_locked(place: Path) -> bool:
    try:
        lock = host.try_lock(place / "lock", create=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if lock is None:
        return True
    os.close(lock)
    return False


def _write_whole(path: Path, value: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(value)
    os.replace(temporary, path)


def _pause() -> None:
    import time

    time.sleep(0.02)
