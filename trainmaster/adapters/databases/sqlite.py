"""How are records kept in one SQLite file that several processes share?

Every method runs to its end without awaiting: a call costs well under a millisecond, so there is nothing to overlap, and nothing of
this process can come between the statements of one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import msgspec

from trainmaster.adapters.databases.queries import named_queries
from trainmaster.core import invariants
from trainmaster.core.house import JobLinks
from trainmaster.core.job import JobId, JobRecord, Outcome, Phase
from trainmaster.core.search import JobView, Search, verdict
from trainmaster.core.story import StoryLine
from trainmaster.core.study import Child, StudyRecord
from trainmaster.errors import DatabaseUnavailable, NewerDatabase, RevisionConflict, StoreRejected
from trainmaster.ports.database import Change, Leftover, NewJob, Selection, WorkLease
from trainmaster.spec.where import Compared, Every

_Value = str | float | int | bytes | None

#: What SQLite says → what to do about it.
_HINTS = {
    "SQLITE_BUSY": "another process writes for long; try again when it is done (fuser names it)",
    "SQLITE_FULL": "free some space on its disk, then try again",
    "SQLITE_IOERR": "free some space on its disk, then try again; if there is some, the disk may be failing",
    "SQLITE_NOTADB": "move it aside: trainmaster begins a new one, and jobs in the old one are no longer listed",
    "SQLITE_CORRUPT": "move it aside: trainmaster begins a new one, and jobs in the old one are no longer listed",
    "SQLITE_READONLY": "make it and its folder writable, or set TRAINMASTER_HOME to another folder",
    "SQLITE_CANTOPEN": "make it and its folder writable, or set TRAINMASTER_HOME to another folder",
}

_record = msgspec.json.Decoder(JobRecord)
_view = msgspec.json.Decoder(JobView)
_study = msgspec.json.Decoder(StudyRecord)
_line = msgspec.json.Decoder(StoryLine)
_links = msgspec.json.Decoder(JobLinks)


class SqliteDatabase:
    """One file; write-ahead log, so that readers never wait."""

    def __init__(self, connection: sqlite3.Connection, queries: Mapping[str, str]) -> None:
        self._db = connection
        self._sql = queries
        self._own_writes = 0
        #: records as they were last read; each is what its revision says, for good
        self._unfinished: dict[JobId, JobRecord] = {}

    @classmethod
    def open(cls, path: Path, *, busy_s_max: float = 30.0) -> SqliteDatabase:
        """Open or create the file and bring its schema up to date; while somebody else writes, wait so long."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=busy_s_max, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            _migrate(connection, path)
        except OSError as error:
            hint = "make its folder writable, or set TRAINMASTER_HOME to another one"
            raise StoreRejected(f"cannot open the database {path}: {error.strerror}", hint=hint) from error
        except sqlite3.DatabaseError as error:
            raise DatabaseUnavailable(f"cannot open the database {path}: {error}", hint=_hint(error)) from error
        return cls(connection, named_queries())

    async def add(self, job: JobRecord, lines: Sequence[StoryLine], wake_at: datetime | None) -> None:
        """Store a new job."""
        invariants.check(job)
        wake = None if wake_at is None else wake_at.timestamp()
        with self._transaction():
            try:
                added = self._run("add_job", {**_columns(job), "wake_at": wake})
            except sqlite3.IntegrityError as error:
                raise RevisionConflict(f"job {job.id} exists already") from error
            if added.rowcount != 1:
                raise RevisionConflict(f"files of a job {job.id} that was deleted are still being cleared")
            for name, value in job.spec.tags.items():
                self._run("add_tag", {"id": job.id, "name": name, "value": value})
            self._append(job.id, lines)

    async def add_many(self, jobs: Sequence[NewJob], study: StudyRecord | None = None) -> None:
        """Store new jobs and their study in one transaction."""
        rows = [{**_columns(invariants.check(new.job)), "wake_at": new.wake_at.timestamp()} for new in jobs]
        tags = [{"id": new.job.id, "name": n, "value": v} for new in jobs for n, v in new.job.spec.tags.items()]
        lines = [{"id": new.job.id, "line": msgspec.json.encode(line)} for new in jobs for line in new.lines]
        with self._transaction():
            try:
                if study is not None:
                    self._run("add_study", _study_columns(study))
                with _answers():
                    self._db.executemany(self._sql["add_job"], rows)
                    self._db.executemany(self._sql["add_tag"], tags)
                    self._db.executemany(self._sql["add_line"], lines)
            except sqlite3.IntegrityError as error:
                raise RevisionConflict("one of these jobs exists already") from error

    async def commit_many(self, changes: Sequence[Change], *, under: WorkLease | None = None) -> list[JobId]:
        """Compare-and-set for each, in one transaction."""
        stored: list[JobId] = []
        with self._transaction():
            for change in changes:
                if self._set(change.job, change.job.revision, change.wake_at, under) is not None:
                    self._append(change.job.id, change.lines)
                    stored.append(change.job.id)
        return stored

    async def load(self, job_id: JobId) -> JobRecord | None:
        """The newest record."""
        row = self._run("load_job", {"id": job_id}).fetchone()
        return None if row is None else _record.decode(row[0])

    async def commit(
        self,
        job: JobRecord,
        *,
        expect_revision: int,
        lines: Sequence[StoryLine] = (),
        wake_at: datetime | None = None,
        under: WorkLease | None = None,
    ) -> JobRecord:
        """Compare-and-set on the revision."""
        with self._transaction():
            stored = self._set(job, expect_revision, wake_at, under)
            if stored is None:
                raise RevisionConflict(f"job {job.id} is no longer at revision {expect_revision}")
            self._append(job.id, lines)
        return stored

    def _set(self, job: JobRecord, expect_revision: int, wake_at: datetime | None, under: WorkLease | None) -> JobRecord | None:
        """Inside a transaction: the record as it is stored now; None: it has moved on."""
        stored = invariants.check(msgspec.structs.replace(job, revision=expect_revision + 1))
        fence: dict[str, _Value] = {"lease": under.name if under else None, "owner": under.owner if under else None}
        wake = None if wake_at is None else wake_at.timestamp()
        done = self._run("commit_job", {**_columns(stored), **fence, "wake_at": wake, "expected": expect_revision})
        return stored if done.rowcount == 1 else None

    async def remove(self, job_id: JobId, *, expect_revision: int) -> None:
        """Record, tags and story go together, and the note comes."""
        job: dict[str, _Value] = {"id": job_id}
        with self._transaction():
            row = self._run("removable_job", {**job, "expected": expect_revision}).fetchone()
            if row is None:
                raise RevisionConflict(f"job {job_id} is no longer at revision {expect_revision}, or is still looked after")
            self._run("add_leftover", {**job, "code": _links.decode(row[0]).code.sha256})
            for query in ("remove_tags", "remove_story", "remove_job"):
                self._run(query, job)
            self._run("remove_empty_studies", {})

    async def leftovers(self) -> list[Leftover]:
        """By id."""
        return [Leftover(job_id=JobId(job_id), code=code) for job_id, code in self._run("leftovers", {})]

    async def cleared(self, job_id: JobId) -> None:
        """The note goes."""
        with self._transaction():
            self._run("remove_leftover", {"id": job_id})

    async def links(self) -> list[JobLinks]:
        """One pass over all records."""
        return [_links.decode(row[0]) for row in self._run("all_records", {})]

    async def wake(self, job_id: JobId, at: datetime) -> None:
        """Look sooner."""
        with self._transaction():
            self._run("wake_job", {"id": job_id, "at": at.timestamp()})

    async def wake_all(self, at: datetime) -> None:
        """Look sooner at everything."""
        with self._transaction():
            self._run("wake_all", {"at": at.timestamp()})

    async def lease_due(self, owner: str, now: datetime, until: datetime, limit: int) -> list[JobId]:
        """Take work leases; reads first, so that an idle look writes nothing."""
        when: dict[str, _Value] = {"now": now.timestamp()}
        due = [row[0] for row in self._run("due_jobs", {**when, "limit": limit})]
        if not due:
            return []
        with self._transaction():
            lease = {**when, "owner": owner, "until": until.timestamp()}
            return [JobId(job_id) for job_id in due if self._run("lease_job", {**lease, "id": job_id}).rowcount == 1]

    async def give_back(self, job_id: JobId, owner: str, wake_at: datetime | None) -> None:
        """End a work lease."""
        with self._transaction():
            self._run("give_back_job", {"id": job_id, "owner": owner, "wake_at": None if wake_at is None else wake_at.timestamp()})

    async def hold(self, lease: WorkLease, now: datetime, until: datetime) -> bool:
        """Take or renew a named lease."""
        values: dict[str, _Value] = {"name": lease.name, "owner": lease.owner, "now": now.timestamp(), "until": until.timestamp()}
        with self._transaction():
            return self._run("hold_lease", values).rowcount == 1

    async def holder(self, name: str, now: datetime) -> str | None:
        """Who holds a named lease."""
        row = self._run("lease_holder", {"name": name, "now": now.timestamp()}).fetchone()
        return None if row is None else str(row[0])

    async def let_go(self, lease: WorkLease) -> None:
        """End a named lease."""
        with self._transaction():
            self._run("let_go_lease", {"name": lease.name, "owner": lease.owner})

    async def end_leases(self, owner: str, now: datetime) -> None:
        """End everything an owner holds that is known to be gone."""
        with self._transaction():
            self._run("end_leases", {"owner": owner})
            self._run("free_jobs", {"owner": owner, "now": now.timestamp()})

    async def next_wake(self) -> datetime | None:
        """The earliest wake."""
        row = self._run("next_wake", {}).fetchone()
        return None if row[0] is None else datetime.fromtimestamp(row[0], UTC)

    async def change_mark(self) -> int:
        """Writes of others are counted by SQLite, our own by us."""
        with _answers():
            return int(self._db.execute("PRAGMA data_version").fetchone()[0]) * 1_000_000_007 + self._own_writes

    async def find(self, selection: Selection) -> list[JobRecord]:
        """Newest first."""
        sql, values = _selection_sql(selection)
        with _answers():
            rows = self._db.execute(sql, values)
            if selection.where is None:
                return [_record.decode(row[0]) for row in rows]
            return list(islice(_fitting(rows, selection.where), selection.limit))

    async def unfinished(self) -> list[JobRecord]:
        """Oldest first. The placer asks with every change: only records that changed since the last time are read."""
        known, self._unfinished = self._unfinished, {}
        for job_id, revision in self._run("unfinished_jobs", {}).fetchall():
            record = known.get(job_id)
            if record is None or record.revision != revision:
                record = await self.load(job_id)
            if record is not None and not record.is_finished:
                self._unfinished[job_id] = record
        return list(self._unfinished.values())

    async def resolve(self, text: str) -> list[JobId]:
        """An id, a unique prefix, a name, or ``last``."""
        queries = ("newest_job",) if text == "last" else ("jobs_by_exact_id", "newest_job_named", "jobs_by_prefix")
        for query in queries:
            values: dict[str, _Value] = {"text": text, "end": text + "\U0010ffff"}
            found = [JobId(row[0]) for row in self._run(query, values)]
            if found:
                return found
        return []

    async def story(self, job_id: JobId) -> list[StoryLine]:
        """All lines in order."""
        return [_line.decode(row[0]) for row in self._run("story_lines", {"id": job_id})]

    async def load_study(self, study_id: str) -> StudyRecord | None:
        """What was asked."""
        row = self._run("load_study", {"id": study_id}).fetchone()
        return None if row is None else _study.decode(row[0])

    async def studies(self, limit: int) -> list[StudyRecord]:
        """Newest first."""
        return [_study.decode(row[0]) for row in self._run("newest_studies", {"limit": limit})]

    async def resolve_study(self, text: str) -> list[str]:
        """An id, a name or a prefix."""
        for query in ("study_by_exact_id", "newest_study_named", "studies_by_prefix"):
            found = [str(row[0]) for row in self._run(query, {"text": text, "end": text + "\U0010ffff"})]
            if found:
                return found
        return []

    async def children(self, study_id: str) -> list[Child]:
        """Of each combination the newest job."""
        rows = self._run("children", {"study": study_id}).fetchall()
        return [
            Child(job_id=job_id, index=index, phase=Phase(phase), outcome=None if outcome is None else Outcome(outcome))
            for job_id, index, phase, outcome, _ in rows
        ]

    async def continuations(self, job_id: JobId) -> list[JobRecord]:
        """The jobs that go on from this one."""
        return [_record.decode(row[0]) for row in self._run("continuations", {"id": job_id})]

    async def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _run(self, query: str, values: Mapping[str, _Value]) -> sqlite3.Cursor:
        with _answers():
            return self._db.execute(self._sql[query], values)

    def _append(self, job_id: JobId, lines: Sequence[StoryLine]) -> None:
        for line in lines:
            self._run("add_line", {"id": job_id, "line": msgspec.json.encode(line)})

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _answers():
            self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            with _answers():
                self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk ends it without being asked
                self._db.execute("ROLLBACK")
            raise
        self._own_writes += 1


@contextmanager
def _answers() -> Iterator[None]:
    """SQLite's trouble as ours. A constraint stays what it is: the caller knows what it means."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except (sqlite3.DatabaseError, sqlite3.ProgrammingError) as error:
        raise DatabaseUnavailable(f"the database gave no answer: {error}", hint=_hint(error)) from error


def _hint(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")
    return next((hint for code, hint in _HINTS.items() if name.startswith(code)), "is the disk full, or the file locked?")


def _columns(job: JobRecord) -> dict[str, _Value]:
    return {
        "id": job.id,
        "name": job.spec.name,
        "phase": job.phase.value,
        "outcome": None if job.outcome is None else job.outcome.value,
        "submitted_at": job.submitted_at.timestamp(),
        "revision": job.revision,
        "record": msgspec.json.encode(job),
        "study": None if job.study is None else job.study.id,
        "study_index": None if job.study is None else job.study.index,
        "continues": None if job.continues is None else job.continues.source,
    }


def _study_columns(study: StudyRecord) -> dict[str, _Value]:
    return {
        "id": study.id,
        "name": study.name,
        "submitted_at": study.submitted_at.timestamp(),
        "record": msgspec.json.encode(study),
    }


def _selection_sql(selection: Selection) -> tuple[str, list[_Value]]:
    """Only fixed text goes into the statement; every value is bound."""
    clauses: list[str] = ["1"]
    values: list[_Value] = []
    for column, wanted in (("phase", selection.phases), ("outcome", selection.outcomes)):
        if wanted:
            clauses.append(f"{column} IN ({','.join('?' * len(wanted))})")
            values.extend(word.value for word in wanted)
    if selection.name is not None:
        clauses.append("name = ?")
        values.append(selection.name)
    for name, value in selection.tags:
        clauses.append("EXISTS (SELECT 1 FROM tags WHERE tags.job_id = jobs.id AND tags.name = ? AND tags.value = ?)")
        values.extend((name, value))
    if selection.study is not None:
        clauses.append("study = ? AND NOT EXISTS (SELECT 1 FROM jobs AS later WHERE later.study = jobs.study")
        clauses[-1] += " AND later.study_index = jobs.study_index AND later.submitted_at > jobs.submitted_at)"
        values.append(selection.study)
    if selection.without_studies:
        clauses.append("(study IS NULL OR study NOT IN (SELECT id FROM studies))")
    for operator, moment in ((">=", selection.submitted_after), ("<", selection.submitted_before)):
        if moment is not None:
            clauses.append(f"submitted_at {operator} ?")
            values.append(moment.timestamp())
    for column, value in _known_columns(selection.where):
        clauses.append(f"{column} = ?")
        values.append(value)
    where = " AND ".join(clauses)
    limit = selection.limit if selection.where is None else -1
    return f"SELECT record FROM jobs WHERE {where} ORDER BY submitted_at DESC, id DESC LIMIT ?", [*values, limit]


def _known_columns(where: Search | None) -> list[tuple[str, str]]:
    """What a condition asks of columns in any case: then only those rows are read. The condition itself is still asked."""
    if where is None:
        return []
    parts = where.condition.conditions if isinstance(where.condition, Every) else (where.condition,)
    return [
        (part.field.kind, part.value)
        for part in parts
        if isinstance(part, Compared)
        and part.field.kind in {"id", "name", "phase", "outcome"}
        and part.operator == "="
        and isinstance(part.value, str)
    ]


def _fitting(rows: Iterable[tuple[bytes]], where: Search) -> Iterator[JobRecord]:
    """Records that fit, one after the other: whoever has enough stops. Only those that fit are read in full."""
    fits, decode = verdict(where), (_record if where.needs_record else _view).decode
    for (record,) in rows:
        if fits(decode(record)):
            yield _record.decode(record)


def migrations() -> list[tuple[int, str]]:
    """Number and text of every migration, in order."""
    files = sorted(Path(__file__).with_name("migrations").glob("*.sql"))
    return [(int(file.name.split("_")[0]), file.read_text()) for file in files]


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    known = migrations()
    newest = known[-1][0]
    if version > newest:
        raise NewerDatabase(
            f"{path} was written by a newer Trainmaster (schema {version}; this one knows {newest})",
            hint="upgrade this installation, or set TRAINMASTER_HOME to another folder",
        )
    if version == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])  # somebody else may have been first
    for number, text in known:
        if number > version:
            for statement in text.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
    connection.execute("COMMIT")
