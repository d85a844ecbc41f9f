"""Which processes belong to this world, since when and until when? They bear a mark in their environment; nobody else is touched.

Everything that is started here inherits the mark: commands, the drivers and runners they start, and the scripts of their jobs. A
signal goes through a descriptor of the process, opened before a last look whether it is still the one that was seen.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters import host, process_folder
from trainmaster.core.job import ALLOCATION_MARK

MARK = "CHAOS_WORLD"


class Role(StrEnum):
    """What a process of this world is."""

    COMMAND = "command"
    DRIVER = "driver"
    RUNNER = "runner"
    SCRIPT = "script"
    #: between its start and its own program
    UNBORN = "unborn"


class Seat(Struct, frozen=True, kw_only=True):
    """One process of this world."""

    pid: int
    #: tells it from a later one with the same number
    start: str
    role: Role
    #: of a runner or a script
    allocation: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """What it may be called by."""
        side = "machines" if self.role in {Role.RUNNER, Role.SCRIPT} else "control"
        return (self.role.value, side, self.allocation)


class Lifetime(Struct, kw_only=True):
    """A process, from the first to the last moment it was seen alive."""

    seat: Seat
    #: None until `known` was told that everything else was looked at, too
    first_s: float | None = None
    last_s: float
    is_over: bool = False


class ProcessWatch:
    """Looks at the process table again and again."""

    def __init__(self, mark: str, machines: Path) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._machines = machines
        self._own_start = int(host.process_start(os.getpid()))
        self.lifetimes: dict[tuple[int, str], Lifetime] = {}
        self._living: list[Seat] = []

    def look(self, now_s: float) -> list[Seat]:
        """Everybody who lives now."""
        found = [seat for pid in _pids() if (seat := self._seat(pid)) is not None]
        seen = {(seat.pid, seat.start) for seat in found}
        for seat in found:
            life = self.lifetimes.setdefault((seat.pid, seat.start), Lifetime(seat=seat, last_s=now_s))
            life.seat, life.last_s = seat, now_s
        for key, life in self.lifetimes.items():
            life.is_over = life.is_over or key not in seen
        self._living = found
        return found

    def known(self, now_s: float) -> None:
        """Records were read after the last look: whoever is new in it began no later than now, and what led to it is known."""
        for life in self.lifetimes.values():
            life.first_s = now_s if life.first_s is None else life.first_s

    def living(self, *roles: Role) -> list[Seat]:
        """Who lived when somebody last looked, in these roles, in order of age."""
        return [seat for seat in self._living if seat.role in roles]

    def named(self, pid: int) -> Seat | None:
        """A process of this world by its number, as it is now."""
        return self._seat(pid)

    def _seat(self, pid: int) -> Seat | None:
        start = host.process_start(pid)
        if not start or int(start) < self._own_start or host.process_state(pid) in {"Z", "X", ""}:
            return None
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return None
        if self._mark not in environ or pid == os.getpid():
            return None
        allocation = next((e.decode().partition("=")[2] for e in environ if e.startswith(f"{ALLOCATION_MARK}=".encode())), "")
        if allocation:
            return Seat(pid=pid, start=start, role=Role.SCRIPT, allocation=allocation)
        if "trainmaster.runner" in words:
            return self._runner(pid, start, words)
        role = Role.DRIVER if "trainmaster.embedded" in words else Role.COMMAND
        return Seat(pid=pid, start=start, role=role)

    def _runner(self, pid: int, start: str, words: list[str]) -> Seat:
        """The runner itself; what it has forked and is not yet another program looks just like it."""
        place = Path(words[words.index("trainmaster.runner") + 1])
        known = process_folder.read_process(place / "process.json")
        is_runner = known is not None and (known.pid, known.start) == (pid, start)
        return Seat(pid=pid, start=start, role=Role.RUNNER if is_runner else Role.UNBORN, allocation=place.name)


def send(seat: Seat, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False if it is gone."""
    try:
        descriptor = os.pidfd_open(seat.pid)
    except OSError:
        return False
    try:
        if host.process_start(seat.pid) != seat.start:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def owner_of(local_port: int, remote_port: int, pids: Iterable[int]) -> int:
    """Which of these processes holds the connection from one port of loopback to another; 0: none of them."""
    wanted = (f"0100007F:{local_port:04X}", f"0100007F:{remote_port:04X}")
    with open("/proc/net/tcp") as table:
        inodes = [fields[9] for line in table if tuple((fields := line.split())[1:3]) == wanted]
    return next((pid for pid in pids if inodes and f"socket:[{inodes[0]}]" in _open_files(pid)), 0)


def control_groups(job_ids: Iterable[str]) -> list[Path]:
    """Control groups of these jobs that are still there."""
    root = Path("/sys/fs/cgroup")
    return sorted(group for job_id in job_ids for depth in ("", "*/") for group in root.glob(f"{depth}trainmaster-{job_id}-a*"))


def _open_files(pid: int) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def _pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
