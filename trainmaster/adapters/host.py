"""What can this operating system do for us? Everything that differs between systems is here, and only here.

Linux has all of it. Elsewhere (macOS) what is missing degrades: a grandchild that changed its group may outlive its job, open files
are not seen, and `limits` says so; nothing fails to import.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

IS_LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _F_SETPIPE_SZ, _PF_EXITING = 1, 36, 1031, 4
#: A look at a lock takes microseconds; one that lasts a second is somebody stopped in the middle of it.
_LOOKS_TO_WAIT_FOR = 1000
_libc = ctypes.CDLL(None, use_errno=True) if IS_LINUX else None


def limits() -> list[str]:
    """What this system cannot do, for people; empty on Linux."""
    if IS_LINUX:
        return []
    return ["processes that leave their job's group may outlive it", "files still open for writing are not noticed before a commit"]


def own_environment() -> dict[str, str]:
    """The environment for a process of ours: modules on the user's PYTHONPATH are for their scripts, not for us."""
    environ = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"}}
    if "PYTHONPATH" in os.environ:
        environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # we may have been found through it
    return environ


def adopt_orphans() -> None:
    """Become the parent of every orphan below us, so that none of a job's processes gets lost."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """For a new child: end when the thread that started us ends."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def widen_pipe(descriptor: int, size_bytes: int) -> None:
    """Let a pipe hold more; a smaller one is only slower."""
    if IS_LINUX:
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, _F_SETPIPE_SZ, size_bytes)


def splice_to_file() -> Callable[[int, int, int], int] | None:
    """Kernel-side copy from a pipe to a file, where there is one."""
    if not IS_LINUX:
        return None
    return os.splice


def boot_id() -> str:
    """Differs after a reboot; empty where nobody can tell."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def elapsed_s() -> float:
    """Seconds that pass also while the machine sleeps, and never jump."""
    import time

    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def try_lock(path: Path, *, create: bool) -> int | None:
    """Take an exclusive lock that the kernel ends with our process; None if somebody holds it. The caller closes the descriptor.

    Whoever only looks, with `is_locked`, keeps nobody from taking it: we wait until it has looked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    try:
        for _ in range(_LOOKS_TO_WAIT_FOR):
            if _flock(descriptor, fcntl.LOCK_EX):
                return descriptor
            if not _flock(descriptor, fcntl.LOCK_SH):
                break
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # only lookers hold it
            _pause()
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def is_locked(path: Path) -> bool:
    """Whether somebody holds the exclusive lock. Several may look at once; FileNotFoundError when there is nothing to look at."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not _flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        raise
    return True


def _pause() -> None:
    import time

    time.sleep(0.001)


def process_start(pid: int) -> str:
    """When a process began, in ticks since boot: tells it from a later one with the same number. Empty if there is none."""
    fields = _stat_fields(pid)
    return fields[19] if fields else ""


def process_state(pid: int) -> str:
    """One letter: R, S, D, T (stopped), Z (ended)…; empty if there is none."""
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process handles a signal by now; where nobody can tell, we believe it."""
    if not IS_LINUX:
        return True
    with contextlib.suppress(OSError, StopIteration, ValueError), open(f"/proc/{pid}/status") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
        return bool(caught >> (number - 1) & 1)
    return False


def is_ending(pid: int) -> bool:
    """Whether a process is gone or on its way: from then on it may have closed its files, also those it was in the middle of."""
    fields = _stat_fields(pid)
    return not fields or fields[0] in {"Z", "X"} or bool(int(fields[6]) & _PF_EXITING)


def is_same_process(pid: int, start: str) -> bool:
    """Whether `pid` is still the process that began at `start`."""
    if not IS_LINUX:
        return _is_alive(pid)
    return bool(start) and process_start(pid) == start and process_state(pid) != "Z"


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in _pids():
        fields = _stat_fields(entry)
        if fields and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(entry)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, [])]
        found.extend(level)
    return found


def marked_processes(variable: str, value: str) -> list[int]:
    """Every process of ours that was given `variable=value` and lives: finds a job's processes wherever they went."""
    wanted = f"{variable}={value}".encode()
    found: list[int] = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read()
        except OSError:
            continue
        if wanted in environ.split(b"\0") and process_state(pid) != "Z":
            found.append(pid)
    return found


def kill_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes that may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def is_in_group(pid: int, leader: int) -> bool:
    """Whether a process is in a group; one that is gone counts as being in it."""
    try:
        return os.getpgid(pid) == leader
    except ProcessLookupError:
        return True


def open_for_writing(pids: Iterable[int], folder: Path) -> str:
    """A file below `folder` that one of these processes holds open for writing; empty if none does."""
    below = f"{os.path.realpath(folder)}/"
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for number in numbers:
            with contextlib.suppress(OSError, ValueError):
                target = os.readlink(f"/proc/{pid}/fd/{number}")
                if target.startswith(below) and _writes(pid, number):
                    return target.removesuffix(" (deleted)")
    return ""


def out_of_memory_kills() -> int:
    """How many processes the kernel ended for lack of memory since boot."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def make_cgroup(name: str) -> Path | None:
    """A cgroup of our own for one job, where we may make one: it can be ended as a whole."""
    mount = _cgroup2_mount()
    if mount is None:
        return None
    try:
        own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        group = mount / own.strip("/") / f"trainmaster-{name}"
        group.mkdir(exist_ok=True)
        if os.access(group / "cgroup.procs", os.W_OK) and (group / "cgroup.kill").exists():
            return group
        group.rmdir()
    except (OSError, StopIteration):
        pass
    return None


def free_bytes(folder: Path) -> int:
    """How much room is left where a folder lies, for those who are not root; much, where nobody can say."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 1 << 60
    return found.f_bavail * found.f_frsize


def drop_cgroup(group: Path) -> None:
    """Remove a cgroup that nobody is in; one that somebody is in stays."""
    with contextlib.suppress(OSError):
        group.rmdir()


def join_cgroup(group: Path) -> None:
    """Move the calling process into a cgroup; failing that, stay where we are."""
    with contextlib.suppress(OSError):
        descriptor = os.open(group / "cgroup.procs", os.O_WRONLY)
        os.write(descriptor, b"0")
        os.close(descriptor)


def end_cgroup(group: Path) -> bool:
    """End every process of a cgroup at once and remove it when it is empty; whether it is gone."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def cgroup_processes(group: Path) -> list[int]:
    """Every process of a cgroup; none if it is gone."""
    with contextlib.suppress(OSError):
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    return []


def cpu_count() -> int:
    """CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Memory of this machine, or of the container we are in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(file).read_text()))
    return total


def gpu_indexes() -> tuple[int, ...]:
    """GPUs by NVML, when its library is there."""
    if not (os.path.exists("/dev/nvidiactl") or os.path.exists("/proc/driver/nvidia")):
        return ()
    try:
        import pynvml

        pynvml.nvmlInit()
        return tuple(range(pynvml.nvmlDeviceGetCount()))
    except Exception:  # noqa: BLE001  NVML's error classes exist only when the package does
        return tuple(sorted(int(p.name.removeprefix("nvidia")) for p in Path("/dev").glob("nvidia[0-9]*")))


def resident_bytes(pid: int) -> int:
    """Memory a process holds now; 0 if it is gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _cgroup2_mount() -> Path | None:
    for candidate in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if os.path.exists(f"{candidate}/cgroup.procs"):
            return Path(candidate)
    return None


def _pids() -> list[int]:
    if not IS_LINUX:
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; the command name before it may contain anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def _writes(pid: int, number: str) -> bool:
    """Whether a descriptor may overwrite what is there. One that only appends is a log, and may stay open for hours."""
    with open(f"/proc/{pid}/fdinfo/{number}") as file:
        flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
    return flags & os.O_ACCMODE in {os.O_WRONLY, os.O_RDWR} and not flags & os.O_APPEND


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
