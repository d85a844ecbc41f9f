"""How is the user's process started, signalled, waited for and found, with everything it started?"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.adapters import host
from trainmaster.core.job import ALLOCATION_MARK

if TYPE_CHECKING:
    import resource


class Ended(Struct, frozen=True, kw_only=True):
    """How the process ended."""

    code: int | None
    signal: str | None
    max_rss_bytes: int
    cpu_s: float
    #: what it had started outlived it, and ended by itself
    heirs_ended_by_themselves: bool = False


class JobProcess:
    """The user's process and everything below it."""

    def __init__(self, name: str, cgroup: Path | None) -> None:
        self._name = name
        self._cgroup = cgroup
        self._pid = 0
        self._is_reaped = False
        self._is_told_to_end = False
        #: children of ours that are none of the job's
        self._beside: set[int] = set()
        self._starting = threading.Lock()

    def start(
        self, command: Sequence[str], environ: Mapping[str, str], folder: Path, output: int, on_exit: Callable[[Ended], None]
    ) -> None:
        """Start it, in a session of its own. Must be called on the main thread: the child dies with the thread that made it."""
        cgroup = self._cgroup

        def in_child() -> None:
            if cgroup is not None:
                host.join_cgroup(cgroup)
            host.die_with_parent()

        process = subprocess.Popen(
            list(command),
            cwd=folder,
            env={**environ, ALLOCATION_MARK: self._name},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=in_child,  # noqa: PLW1509  takes no lock, imports nothing: two system calls
        )
        self._pid = process.pid
        process.returncode = 0  # we reap it ourselves, to learn what it used
        threading.Thread(target=self._reap, args=(on_exit,), name="reaper", daemon=True).start()

    def start_beside(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process that helps us and is none of the job's: not counted, not signalled, not waited for.

        It talks over pipes, stands in a session of its own and dies with the thread that made it.
        """
        with self._starting:  # whoever looks at our children meanwhile must not take it for one of the job's
            process = subprocess.Popen(
                list(command),
                env=host.own_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=host.die_with_parent,  # noqa: PLW1509  takes no lock, imports nothing: one system call
            )
            self._beside.add(process.pid)
        process.returncode = 0  # reaped with the others
        return process

    def pids(self) -> list[int]:
        """Every living process of the job."""
        with self._starting:
            return [pid for pid in host.descendants(os.getpid()) if pid not in self._beside]

    def writes(self, folder: Path) -> str:
        """Why nobody can say that the job is not in the middle of writing below `folder`, in words; empty when it is not.

        Whoever ends closes its files, whole or not. So only what the living say counts, and only while the script itself lives.
        """
        pids = self.pids()
        path = host.open_for_writing(pids, folder)
        if path:
            return f"{os.path.basename(path)} is still open for writing"
        script_has_ended = self._is_reaped or (host.IS_LINUX and host.is_ending(self._pid))
        return "a process of the job has just ended" if script_has_ended or any(map(host.is_ending, pids)) else ""

    def signal(self, name: str) -> None:
        """To every process of the job, once: the group, and whoever left it. A script's handler must not be called twice."""
        number = signal.Signals[name]
        self._is_told_to_end = True
        pids = self.pids()
        if number is signal.SIGKILL and self._cgroup is not None:
            host.end_cgroup(self._cgroup)
        if self._pid and not (self._is_reaped and host.IS_LINUX):  # once it is reaped, its number may be somebody else's
            host.kill_group(self._pid, number)
            pids = [pid for pid in pids if not host.is_in_group(pid, self._pid)]
        host.kill_all(pids, number)

    def _reap(self, on_exit: Callable[[Ended], None]) -> None:
        """Wait for the process, and for every orphan that became our child.

        Told to end, the job is over with its last process: a shell dies of SIGTERM at once, while what it started still saves.
        """
        ended: Ended | None = None
        heirs: list[int] = []
        while True:
            is_last = ended is not None and not self.pids()
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG if is_last else 0)
            except ChildProcessError:
                break
            if pid == 0:
                break  # what is left is none of the job's
            if self._is_beside(pid):
                continue
            if pid == self._pid:
                self._is_reaped = True
                ended = _ended(os.waitstatus_to_exitcode(status), usage)
                if not self._is_told_to_end:
                    on_exit(ended)
                    ended = None
            elif ended is not None:
                heirs.append(os.waitstatus_to_exitcode(status))
        if ended is not None:
            on_exit(replace(ended, heirs_ended_by_themselves=bool(heirs) and min(heirs) >= 0))

    def _is_beside(self, pid: int) -> bool:
        """Whether a child that was reaped is none of the job's; its number may be somebody else's from now on."""
        with self._starting:
            is_beside = pid in self._beside
            self._beside.discard(pid)
            return is_beside


def _ended(code: int, usage: resource.struct_rusage) -> Ended:
    unit = 1024 if host.IS_LINUX else 1
    return Ended(
        code=code if code >= 0 else None,
        signal=_signal_name(-code) if code < 0 else None,
        max_rss_bytes=usage.ru_maxrss * unit,
        cpu_s=usage.ru_utime + usage.ru_stime,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
