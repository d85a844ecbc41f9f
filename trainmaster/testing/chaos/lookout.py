"""What can be seen of a world from outside, again and again? Its processes, its records, and what its programs say."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import msgspec

from trainmaster.adapters import process_folder
from trainmaster.core.job import JobRecord, Phase
from trainmaster.testing.chaos.chronicle import Chronicle
from trainmaster.testing.chaos.processes import ProcessWatch, Role, owner_of
from trainmaster.testing.chaos.proxy import Caller
from trainmaster.testing.witness import Recorded

LOOK_S = 0.05
_LOOKS_PER_READING = 10


class Lookout:
    """Looks some twenty times a second."""

    def __init__(self, home: Path, watch: ProcessWatch, chronicle: Chronicle) -> None:
        self._home, self._watch, self._chronicle = home, watch, chronicle
        self._database: sqlite3.Connection | None = None
        self._revisions: dict[str, int] = {}
        self.records: dict[str, JobRecord] = {}
        self._told: set[str] = set()

    async def watch(self) -> None:
        """Look until nobody wants to know any more."""
        looks = 0
        while True:
            self.look()
            looks += 1
            if looks % _LOOKS_PER_READING == 0:
                self.read_logs()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """One look at everything."""
        self._watch.look(self._chronicle.now_s())
        with contextlib.suppress(sqlite3.Error):
            self._look_at_records()
            self._watch.known(self._chronicle.now_s())

    @property
    def unfinished(self) -> list[JobRecord]:
        """Jobs that were not over at the last look."""
        return [job for job in self.records.values() if job.phase is not Phase.FINISHED]

    @property
    def machines(self) -> list[str]:
        """Folders of machines that were not removed yet."""
        return process_folder.folders(self._home / "machines")

    def caller_of(self, local_port: int, remote_port: int) -> Caller:
        """Who is at the other end of a connection."""
        self.look()
        seats = self._watch.living(Role.RUNNER, Role.DRIVER, Role.COMMAND, Role.UNBORN)
        pid = owner_of(local_port, remote_port, [seat.pid for seat in seats])
        names = next((seat.names for seat in seats if seat.pid == pid), ())
        return Caller(pid=pid, names=names)

    def read_logs(self) -> None:
        """A traceback in the words of a driver or a runner is a fault of theirs, whatever was done to them."""
        for path in (self._home / "driver.log", *self._home.glob("machines/*/runner.log")):
            with contextlib.suppress(OSError):
                text = path.read_text(errors="replace")
                name = str(path.relative_to(self._home))
                begin = text.find("Traceback (most recent call last)")
                if begin >= 0 and name not in self._told:
                    self._told.add(name)
                    self._chronicle.wrong("programs_do_not_break", f"{name} holds a traceback:\n{text[begin : begin + 3000]}")

    def _look_at_records(self) -> None:
        path = self._home / "trainmaster.db"
        if self._database is None:
            if not path.exists():
                return
            self._database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.05, isolation_level=None)
        for job_id, revision in self._database.execute("SELECT id, revision FROM jobs").fetchall():
            if self._revisions.get(job_id) != revision:
                [(text,)] = self._database.execute("SELECT record FROM jobs WHERE id = ?", (job_id,)).fetchall()
                job = msgspec.json.decode(text, type=JobRecord)
                self._revisions[job_id], self.records[job_id] = job.revision, job
                self._chronicle.note(Recorded(self._chronicle.now_s(), job))

    def close(self) -> None:
        """Look no more."""
        if self._database is not None:
            self._database.close()
