"""How is the user's process started, signalled, waited for and found, with everything it started?"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters import host

#: Every process of an attempt carries this; it is how leftovers are found when the runner is gone.
MARK = "TM_ALLOCATION"


class Ended(Struct, frozen=True, kw_only=True):
    """How the process ended."""

    code: int | None
    signal: str | None
    max_rss_bytes: int
    cpu_s: float


class JobProcess:
    """The user's process and everything below it."""

    def __init__(self, name: str, cgroup: Path | None) -> None:
        self._name = name
        self._cgroup = cgroup
        self._pid = 0

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
            env={**environ, MARK: self._name},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=in_child,  # noqa: PLW1509  takes no lock, imports nothing: two system calls
        )
        self._pid = process.pid
        process.returncode = 0  # we reap it ourselves, to learn what it used
        threading.Thread(target=self._reap, args=(on_exit,), name="reaper", daemon=True).start()

    def pids(self) -> list[int]:
        """Every living process of the job."""
        return host.descendants(os.getpid())

    def signal(self, name: str) -> None:
        """To every process of the job: the group first, then whoever left it."""
        number = signal.Signals[name]
        if self._pid:
            host.kill_group(self._pid, number)
        if number is signal.SIGKILL and self._cgroup is not None:
            host.end_cgroup(self._cgroup)
        host.kill_all(self.pids(), number)

    def _reap(self, on_exit: Callable[[Ended], None]) -> None:
        """Wait for the process, and for every orphan that became our child."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                return
            if pid != self._pid:
                continue
            code = os.waitstatus_to_exitcode(status)
            unit = 1024 if host.IS_LINUX else 1
            on_exit(
                Ended(
                    code=code if code >= 0 else None,
                    signal=_signal_name(-code) if code < 0 else None,
                    max_rss_bytes=usage.ru_maxrss * unit,
                    cpu_s=usage.ru_utime + usage.ru_stime,
                )
            )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
