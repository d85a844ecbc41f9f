"""A home, a source folder and real processes: what the process tests stand on.

Looking never drives: records and stories are read from the database file, logs and checkpoints from the store's folder, so
a test decides itself which command comes next. Scripts advance only as far as their gate file says, so nobody sleeps for luck.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainmaster.adapters import host
from trainmaster.adapters.object_store import open_store
from trainmaster.spec import layout

T = TypeVar("T")
COMMAND = Path(sys.prefix) / "bin" / "trainmaster"
DEADLINE_S = float(os.environ.get("WORLD_DEADLINE_S", "60"))


class World:
    """One user's home folder with everything that runs for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.store = self.home / "store"
        self.source = folder / "source"
        self.gate = folder / "gate"
        self.started: list[subprocess.Popen[bytes]] = []
        #: stands before every command
        self.prefix: list[str] = []
        self.source.mkdir(parents=True)
        self.open_gate(0)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "python").symlink_to(os.path.realpath(sys.executable))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINMASTER_", "TM_")) and k != "VIRTUAL_ENV"}
        self.environ = {
            **kept,
            "PATH": f"{programs}:{kept['PATH']}",
            "GATE": str(self.gate),
            "TRAINMASTER_HOME": str(self.home),
            "TRAINMASTER_HEARTBEAT_S": "0.3",
            "TRAINMASTER_ATTEMPT_LEASE_S": "5",
            "TRAINMASTER_LOOK_S": "0.2",
            "TRAINMASTER_DRIVER_IDLE_S": "0.3",
            "TRAINMASTER_CPUS": "4",
            "TRAINMASTER_GPUS": "0",
        }

    # -- what a user does

    def write(self, name: str, text: str) -> Path:
        """A file in the source folder."""
        path = self.source / name
        path.write_text(text)
        return path

    def job_file(self, script: str, **fields: Any) -> str:
        """A job file that runs `script` (text) and commits quickly; its name."""
        name = fields.pop("name", "job")
        self.write(f"{name}.py", script)
        checkpoints = {"settle": 0.1, **fields.pop("checkpoints", {})}
        retry = {"backoff": 0.05, "backoff_max": 0.1, **fields.pop("retry", {})}
        return self.spec_file(name=name, entry_point=f"{name}.py", checkpoints=checkpoints, retry=retry, **fields)

    def spec_file(self, **fields: Any) -> str:
        """A job file with these fields and no others; its name."""
        self.write(f"{fields['name']}.json", json.dumps(fields))
        return f"{fields['name']}.json"

    def cli(self, *words: str, expect: int | None = 0, timeout_s: float = DEADLINE_S) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        done = subprocess.run(
            [*self.prefix, COMMAND, *words],
            cwd=self.source,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
        )
        if expect is not None and done.returncode != expect:
            said = f"{done.stdout[-3000:].decode(errors='replace')}\n{done.stderr[-3000:].decode(errors='replace')}"
            pytest.fail(f"trainmaster {' '.join(words)} → {done.returncode}\n{said}\n{self.report()}")
        return done

    def json(self, *words: str, expect: int | None = 0) -> Any:
        """The answer of a command for programs."""
        return json.loads(self.cli(*words, "--json", expect=expect).stdout)

    def submit(self, job_file: str, *words: str) -> str:
        """Submit in the background; the job's id."""
        return str(self.json("submit", job_file, *words)["id"])

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command and go on; its output lies in `output_of`."""
        with open(self.folder / f"command-{len(self.started)}", "wb") as output:
            process = subprocess.Popen(
                [*self.prefix, COMMAND, *words],
                cwd=self.source,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.started.append(process)
        return process

    def output_of(self, process: subprocess.Popen[bytes]) -> str:
        """What a started command printed so far."""
        return (self.folder / f"command-{self.started.index(process)}").read_text(errors="replace")

    def open_gate(self, step: int) -> None:
        """Let scripts count up to `step`."""
        new = self.gate.with_suffix(".new")
        new.write_text(str(step))
        os.replace(new, self.gate)

    # -- looking, without driving anything

    def ids(self) -> list[str]:
        """Every job, in the order of submission."""
        return [row[0] for row in self._query("SELECT id FROM jobs ORDER BY submitted_at, id")]

    def record(self, job_id: str) -> dict[str, Any]:
        """The job's record."""
        [(text,)] = self._query("SELECT record FROM jobs WHERE id = ?", job_id)
        return {"attempts": [], "failures": 0, "interruptions": 0, **json.loads(text)}

    def story(self, job_id: str) -> list[dict[str, Any]]:
        """The lines of the job's story."""
        rows = self._query("SELECT line FROM story WHERE job_id = ? ORDER BY seq", job_id)
        return [{"evidence": {}, "attempt": 0, **json.loads(text)} for (text,) in rows]

    def _query(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        if not (self.home / "trainmaster.db").exists():
            return []
        with closing(sqlite3.connect(f"file:{self.home / 'trainmaster.db'}?mode=ro", uri=True, timeout=30)) as database:
            try:
                return database.execute(sql, values).fetchall()
            except sqlite3.OperationalError:
                return []

    def next_look_s(self, job_id: str) -> float:
        """When somebody will look at the job again, in seconds since 1970; each look moves it."""
        [(wake_s,)] = self._query("SELECT wake_at FROM jobs WHERE id = ?", job_id)
        return float(wake_s or 0.0)

    def heartbeat(self, job_id: str, attempt: int = 1) -> dict[str, Any]:
        """What a runner last said about itself."""
        file = self.store / layout.heartbeat(job_id, attempt)
        return json.loads(self.until("a runner speaks", lambda: file.exists() and file.read_bytes()))  # type: ignore[no-any-return]

    def later_s(self, job_id: str, first: str, attempt: int = 1) -> float:
        """How long after `first` the runner last spoke."""
        return seconds(self.heartbeat(job_id, attempt)["at"]) - seconds(first)

    def log(self, job_id: str, attempt: int = 1) -> str:
        """What an attempt printed so far."""
        folder = self.store / layout.log_prefix(job_id, attempt)
        chunks = sorted(folder.iterdir()) if folder.is_dir() else []
        return b"".join(chunk.read_bytes() for chunk in chunks).decode(errors="replace")

    def commits(self, job_id: str) -> list[dict[str, Any]]:
        """Every commit marker, oldest first."""
        folder = self.store / layout.checkpoints(job_id)
        found = []
        for marker in folder.glob("*/COMMIT"):
            try:
                found.append(json.loads(marker.read_bytes()))
            except FileNotFoundError:
                continue  # pruned meanwhile
        return sorted(found, key=lambda ref: layout.parse_checkpoint_id(ref["id"]))

    def committed(self, job_id: str, name: str = "state") -> str | None:
        """The content of a file in the newest commit."""
        found = self.commits(job_id)
        return None if not found else self.files_of(job_id, found[-1]["id"])[name].decode()

    def files_of(self, job_id: str, checkpoint: str) -> dict[str, bytes]:
        """Every file of a commit, through its manifest."""
        store = open_store(str(self.store))
        manifest = json.loads(store.get(layout.manifest(job_id, checkpoint)) or b"{}")
        found = {}
        for file in manifest["files"]:
            value = store.get(layout.checkpoint_file(job_id, file["stored_in"], file["path"]))
            assert value is not None, f"{file} of {checkpoint} is not in the store"
            found[file["path"]] = value
        return found

    # -- processes

    def processes(self, job_id: str, attempt: int | None = None) -> list[int]:
        """Living processes of a job's script."""
        numbers = [attempt] if attempt else range(1, len(self.record(job_id)["attempts"]) + 1)
        return [pid for number in numbers for pid in host.marked_processes("TM_ALLOCATION", f"{job_id}-a{number}")]

    def script_pid(self, job_id: str, attempt: int = 1) -> int:
        """The process of the script, as it says itself."""
        line = self.until("the script said its pid", lambda: self._first_line(job_id, attempt))
        return int(line.split(" pid ")[1].split()[0])

    def _first_line(self, job_id: str, attempt: int) -> str | None:
        text = self.log(job_id, attempt)
        return text.split("\n", 1)[0] if "\n" in text else None

    def runner_pid(self, job_id: str, attempt: int = 1) -> int:
        """The runner of an attempt."""
        file = self.home / "machines" / f"{job_id}-a{attempt}" / "process.json"
        return int(json.loads(self.until("a runner was started", lambda: file.exists() and file.read_bytes()))["pid"])

    def family(self) -> list[int]:
        """The two children of FAMILY and STUBBORN that tried to get away."""
        files = [self.folder / "left-session", self.folder / "forked-twice"]
        self.until("the script's children live", lambda: all(f.exists() and f.read_text() for f in files))
        return [int(file.read_text()) for file in files]

    def ours(self) -> list[int]:
        """Commands, drivers and runners of this home."""
        return host.marked_processes("TRAINMASTER_HOME", str(self.home))

    def drivers(self) -> list[int]:
        """Background drivers of this home."""
        return [pid for pid in self.ours() if b"trainmaster.embedded" in _command_line(pid)]

    def kill_drivers(self) -> list[int]:
        """kill -9 every background driver."""
        pids = self.drivers()
        self.kill(*pids)
        return pids

    def kill(self, *pids: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; with SIGKILL, wait until they are gone."""
        host.kill_all(pids, number)
        if number is signal.SIGKILL:
            for process in self.started:
                if process.pid in pids:
                    process.wait(DEADLINE_S)
            self.until(f"{pids} are gone", lambda: not any(map(is_alive, pids)))

    # -- waiting

    def until(self, what: str, condition: Callable[[], T | None], timeout_s: float = DEADLINE_S) -> T:
        """Wait for a condition; on timeout, tell everything there is to tell."""
        deadline = time.monotonic() + timeout_s
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                pytest.fail(f"after {timeout_s:g} s not so: {what}\n{self.report()}")
            time.sleep(0.02)

    def until_committed(self, job_id: str, state: str, name: str = "state") -> None:
        """Wait until the newest commit holds this state."""
        self.until(f"{name} = {state} is committed", lambda: self.committed(job_id, name) == state)

    def until_attempt(self, job_id: str, attempt: int) -> None:
        """Wait until the script of an attempt speaks."""
        self.until(f"attempt {attempt} speaks", lambda: self._first_line(job_id, attempt))

    def until_finished(self, job_id: str) -> dict[str, Any]:
        """Wait for the end, looking only; the record."""
        self.until("the job has finished", lambda: self.record(job_id)["phase"] == "finished")
        return self.record(job_id)

    def wait(self, job_id: str, expect: int | None = 0) -> dict[str, Any]:
        """`trainmaster wait`: drives if nobody does; the record."""
        self.cli("wait", job_id, expect=expect, timeout_s=2 * DEADLINE_S)
        return self.record(job_id)

    def report(self) -> str:
        """Stories, logs, what the runners and the driver said, what lives."""
        parts = []
        for job_id in self.ids():
            lines = [
                f"  {line['at'][11:23]} {line['event']:<14} {line['sentence']} {line['evidence']}" for line in self.story(job_id)
            ]
            record = self.record(job_id)
            parts += [f"== {job_id}: {record['phase']}; commits {[c['id'] for c in self.commits(job_id)]}", *lines]
            for number in range(1, len(record["attempts"]) + 1):
                parts.append(f"-- log of attempt {number} --\n{self.log(job_id, number)[-1500:]}")
                parts.append(f"-- its processes: {self.processes(job_id, number)}")
        logs = [*self.home.glob("machines/*/runner.log"), *self.home.glob("simulated/machines/*/*.log")]
        for path in [*logs, self.home / "driver.log", *self.folder.glob("command-*")]:
            if path.exists():
                parts.append(f"-- {path.relative_to(self.folder)} --\n{path.read_text(errors='replace')[-3000:]}")
        parts.append("living: " + "; ".join(f"{pid} {_command_line(pid)[-80:]!r}" for pid in self.ours()))
        return "\n".join(parts)

    # -- the end

    def close(self) -> None:
        """End every process of this world; a finished job must have none left."""
        finished = [job_id for job_id in self.ids() if self.record(job_id)["phase"] == "finished"]
        left = {job_id: found for job_id in finished if (found := [*self.processes(job_id), *_groups(job_id)])}
        everybody = [*self.ours(), *(pid for job_id in self.ids() for pid in self.processes(job_id))]
        while everybody:
            host.kill_all(everybody, signal.SIGKILL)
            for process in self.started:
                process.poll()
            everybody = [*self.ours(), *(pid for job_id in self.ids() for pid in self.processes(job_id))]
        for process in self.started:
            process.wait()
        for group in [group for job_id in self.ids() for group in _groups(job_id)]:
            self.until("its control group is empty", lambda group=group: host.end_cgroup(group))  # type: ignore[misc]
        assert not left, f"finished, but processes or control groups of theirs live on: {left}"


def world_in(folder: Path) -> Iterator[World]:
    """A world for one test."""
    made = World(folder)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world for one test."""
    yield from world_in(tmp_path)


def is_alive(pid: int) -> bool:
    """Whether a process lives; one that only waits to be reaped does not."""
    return host.process_state(pid) not in {"", "Z", "X"}


def _groups(job_id: str) -> list[Path]:
    """Control groups of a job that were not removed."""
    return [*Path("/sys/fs/cgroup").glob(f"trainmaster-{job_id}-a*"), *Path("/sys/fs/cgroup").glob(f"*/trainmaster-{job_id}-a*")]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


def steps(log: str) -> list[int]:
    """The steps a log speaks of, in order."""
    return [int(line.removeprefix("step ")) for line in log.splitlines() if line.startswith("step ")]


def seconds(moment: str) -> float:
    """A moment as JSON writes it, in seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp()
