"""How are scripts compared whose difference is smaller than the machine's own unrest? All live at once, and take turns.

One runs for a second while the others, with everything that serves them, are stopped (SIGSTOP); then the next. What the machine
does meanwhile, for minutes or for an hour, is in every turn of a round alike, and falls out of the ratio of neighbours.
"""

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.ours import until

_NUMBERS = 3


class Notes:
    """Three numbers in a file that a script and we both have open: its process, its steps, and whether it shall end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(8 * _NUMBERS))
        with open(path, "r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8 * _NUMBERS)

    def _number(self, which: int) -> int:
        return struct.unpack_from("q", self._shared, 8 * which)[0]

    @property
    def pid(self) -> int:
        """The script's process; 0 before it begins."""
        return self._number(0)

    @property
    def steps(self) -> int:
        """How many it has done."""
        return self._number(1)

    def end(self) -> None:
        """Let it end after this step."""
        struct.pack_into("q", self._shared, 16, 1)


class Player:
    """One script, and the processes that serve it alone."""

    def __init__(self, name: str, notes: Notes, find_servants: Callable[[], Sequence[int]] = tuple) -> None:
        self.name, self.notes = name, notes
        self._find_servants = find_servants
        self._servants: Sequence[int] = ()
        #: steps a second, of each turn
        self.rates: list[float] = []
        #: CPU seconds of the script a step, of each turn
        self.costs: list[float] = []

    def begin(self) -> None:
        """Wait until it runs, then stop it."""
        until(lambda: self.notes.pid and self.notes.steps > 0, f"{self.name} to begin")
        time.sleep(2)  # set-up work of ours ends
        self._stop()

    def turn(self, seconds: float) -> None:
        """Run for so long; what was done is noted."""
        steps, cpu_s = self.notes.steps, _cpu_s(self.notes.pid)
        began = time.perf_counter()
        self._go_on()
        time.sleep(seconds)
        self._stop()
        wall_s = time.perf_counter() - began
        done = self.notes.steps - steps
        self.rates.append(done / wall_s)
        self.costs.append((_cpu_s(self.notes.pid) - cpu_s) / max(done, 1))

    def end(self) -> None:
        """Let the script come to its end."""
        self.notes.end()
        self._go_on()

    def _stop(self) -> None:
        self._servants = self._find_servants()
        for pid in (self.notes.pid, *self._servants):
            _signal(pid, signal.SIGSTOP)

    def _go_on(self) -> None:
        for pid in (*self._servants, self.notes.pid):
            _signal(pid, signal.SIGCONT)


def play(players: Sequence[Player], rounds: int, seconds: float) -> None:
    """Each once a round; every round begins with another, so that nobody is always behind the same one."""
    for player in players:
        player.begin()
    try:
        for number in range(-1, rounds):
            turn = number % len(players)
            for player in (*players[turn:], *players[:turn]):
                player.turn(seconds)
            if number < 0:  # the first round warms up
                for player in players:
                    player.rates.clear()
                    player.costs.clear()
    finally:
        for player in players:
            player.end()


def processes_that_know(folder: Path) -> list[int]:
    """Every process with this folder in its command or environment: a home's commands, drivers, runners, and what they start."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if os.fsencode(folder) in text:
                    found.append(int(entry.name))
    return found


def started(words: Sequence[object], environ: dict[str, str], cwd: Path, output: Path) -> subprocess.Popen[bytes]:
    """A bare script with its output in a file."""
    with open(output, "wb") as file:
        return subprocess.Popen(list(map(str, words)), env=environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def _cpu_s(pid: int) -> float:
    """What the kernel counts for a process, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
