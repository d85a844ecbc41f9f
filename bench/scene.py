"""In which surroundings is everything measured? One scratch folder, one interpreter for every job, one stopwatch."""

import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
JOBS = BENCH / "jobs"
#: The environment of `make install`, or the one that measures: a machine that has only the repository may keep it elsewhere.
PROGRAMS = ROOT / ".venv" / "bin" if (ROOT / ".venv" / "bin" / "trainmaster").exists() else Path(sys.prefix) / "bin"
TRAINMASTER = PROGRAMS / "trainmaster"
OUR_PYTHON = PROGRAMS / "python"


class BenchFailed(Exception):
    """A measurement could not be made; the sentence says why."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a command took, and what it printed."""

    wall_s: float
    cpu_s: float
    output: str


class Scene:
    """A scratch folder with a virtual environment that every job of every system runs in."""

    def __init__(self, folder: Path, *, quick: bool, rounds: int | None = None, cpu: str = "any") -> None:
        self.folder = folder
        self.quick = quick
        #: the CPU that a measured script keeps to, or "any"
        self.cpu = cpu
        self._rounds = rounds
        self._venv = folder / "venv"
        # A link to a real interpreter: `python` on the PATH may be a shim that costs more than the job.
        subprocess.run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--without-pip", self._venv], check=True)

    @property
    def python(self) -> Path:
        """The interpreter of every job."""
        return self._venv / "bin" / "python"

    def new_folder(self, name: str) -> Path:
        """An empty folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))

    def source(self, *names: str) -> Path:
        """A new source folder with copies of these job scripts."""
        folder = self.new_folder("source")
        for name in names:
            shutil.copy(JOBS / name, folder)
        return folder

    def environ(self, **more: str) -> dict[str, str]:
        """The user's environment, with the jobs' interpreter active and nothing of Trainmaster set."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINMASTER_", "CONDA_", "TM_", "RAY_", "PYTHON"))}
        path = f"{self.python.parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        return {**kept, "VIRTUAL_ENV": str(self._venv), "PATH": path, **more}

    def rest(self) -> None:
        """The same state before each round that moves gigabytes: the disk idle, and freed memory given back.

        A virtual machine may hand freed memory to its host and get it again page by page: here, touching 5 GiB took 9 s when
        the host had it and 4 s when some was still ours. Without a rest, who comes second in a round decides who is faster.
        """
        os.sync()
        if not self.quick:
            time.sleep(6)

    def rounds(self, wanted: int) -> int:
        """How many rounds to make: what `--rounds` says, or what is wanted; one with `--quick`, to see whether everything works."""
        return 1 if self.quick else self._rounds or wanted


@contextlib.contextmanager
def scratch(where: str | None, **how: object):
    """A scene; its folder goes at the end, also when background drivers take their time to leave."""
    folder = Path(tempfile.mkdtemp(prefix="tm-bench-", dir=where))
    try:
        yield Scene(folder, **how)
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder in which somebody may still be writing a last line."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.2)


def timed(command: Sequence[object], environ: Mapping[str, str], cwd: Path) -> Spent:
    """Run a command to its end. CPU seconds are its own and of those children it waited for, as the kernel counts them."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        child = subprocess.Popen(
            list(map(str, command)), env=dict(environ), cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if child.returncode:
        raise BenchFailed(f"{Path(str(command[0])).name} ended with {child.returncode}: …{text[-600:]}")
    return Spent(wall_s=wall_s, cpu_s=usage.ru_utime + usage.ru_stime, output=text)


def interleaved(rounds: int, ways: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Measure each way once a round, in turning order, so that a slow minute of the machine hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found[name].append(ways[name]())
            tell(f"  {name}: {found[name][-1]:.3f}")
    return found


def best(values: Sequence[float]) -> float:
    """The fastest: what the code costs when the machine does nothing else."""
    return min(values)


def seconds(values: Sequence[float]) -> str:
    """Best and median, to be seen side by side: how far apart they are is the noise."""
    if len(values) == 1:
        return f"{values[0]:.2f} s"
    return f"{min(values):.2f} s (median {statistics.median(values):.2f})"


def tell(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def machine(folder: Path) -> dict[str, str]:
    """Facts a reader needs to compare these numbers with their own."""
    return {
        "CPU": f"{os.cpu_count()} cores, {_cpu_name()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": f"{_filesystem(folder)} at {folder.parent}",
        "Python": platform.python_version(),
        "load when it began": f"{os.getloadavg()[0]:.1f}",
    }


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _filesystem(folder: Path) -> str:
    found = subprocess.run(["df", "--output=fstype", folder], capture_output=True, text=True)
    return found.stdout.split()[-1] if found.returncode == 0 else "?"
