"""What is a database in a simulated world? Dictionaries that keep every promise of the port, and a door to them over the net."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trainmaster.core import invariants
from trainmaster.core.house import JobLinks
from trainmaster.core.job import JobId, JobRecord, Phase
from trainmaster.core.search import verdict
from trainmaster.core.story import StoryLine
from trainmaster.core.study import Child, StudyRecord
from trainmaster.errors import DatabaseUnavailable, RevisionConflict
from trainmaster.ports.database import Change, Leftover, NewJob, Selection, WorkLease
from trainmaster.testing.sim_net import Net, Party

T = TypeVar("T")


class _Row(Struct):
    """A job, its story, and who looks at it when."""

    job: JobRecord
    story: list[StoryLine]
    wake_at: datetime | None
    lease_owner: str | None = None
    lease_until: datetime | None = None

    def is_free(self, now: datetime) -> bool:
        """Whether its work lease may be taken."""
        return self.lease_owner is None or (self.lease_until is not None and self.lease_until < now)


class Tables:
    """What is remembered; every method happens at one moment."""

    def __init__(self, on_recorded: Callable[[JobRecord], None] = lambda _: None) -> None:
        self.rows: dict[str, _Row] = {}
        self.studies: dict[str, StudyRecord] = {}
        self.leases: dict[str, tuple[str, datetime]] = {}
        self.left: dict[str, Leftover] = {}
        self.writes = 0
        self._on_recorded = on_recorded

    def add(self, job: JobRecord, lines: Sequence[StoryLine], wake_at: datetime | None) -> None:
        """A new job."""
        invariants.check(job)
        if job.id in self.rows or job.id in self.left:
            raise RevisionConflict(f"job {job.id} exists already, or files of it are left")
        self.rows[job.id] = _Row(job, list(lines), wake_at)
        self._wrote(job)

    def add_many(self, jobs: Sequence[NewJob], study: StudyRecord | None) -> None:
        """New jobs and their study, all or nothing."""
        ids = [new.job.id for new in jobs]
        is_known = study is not None and study.id in self.studies
        if is_known or len(set(ids)) < len(ids) or any(job_id in self.rows or job_id in self.left for job_id in ids):
            raise RevisionConflict("one of these jobs exists already, or files of it are left")
        if study is not None:
            self.studies[study.id] = study
        for new in jobs:
            self.add(new.job, new.lines, new.wake_at)

    def commit_many(self, changes: Sequence[Change], under: WorkLease | None) -> list[JobId]:
        """What has not moved on."""
        stored: list[JobId] = []
        for change in changes:
            with suppress(RevisionConflict):
                self.commit(change.job, change.job.revision, change.lines, change.wake_at, under)
                stored.append(change.job.id)
        return stored

    def load(self, job_id: JobId) -> JobRecord | None:
        """The newest record."""
        row = self.rows.get(job_id)
        return None if row is None else row.job

    def commit(
        self, job: JobRecord, expect_revision: int, lines: Sequence[StoryLine], wake_at: datetime | None, under: WorkLease | None
    ) -> JobRecord:
        """Compare and set on the revision."""
        stored = invariants.check(replace(job, revision=expect_revision + 1))
        row = self.rows.get(job.id)
        is_fenced_off = under is not None and self.leases.get(under.name, ("", None))[0] != under.owner
        if row is None or row.job.revision != expect_revision or is_fenced_off:
            raise RevisionConflict(f"job {job.id} is no longer at revision {expect_revision}")
        row.job = stored
        row.story.extend(lines)
        row.wake_at = wake_at or row.wake_at
        self._wrote(stored)
        return stored

    def remove(self, job_id: JobId, expect_revision: int) -> None:
        """A finished job that nobody has to look at goes; a note stays."""
        row = self.rows.get(job_id)
        if row is None or row.job.revision != expect_revision or not row.job.is_finished or row.wake_at or row.lease_owner:
            raise RevisionConflict(f"job {job_id} is no longer at revision {expect_revision}, or is still looked after")
        self.left[job_id] = Leftover(job_id=job_id, code=row.job.code.sha256)
        del self.rows[job_id]
        left = {row.job.study.id for row in self.rows.values() if row.job.study is not None}
        self.studies = {name: study for name, study in self.studies.items() if name in left}
        self.writes += 1

    def cleared(self, job_id: JobId) -> None:
        """Nothing of it is left."""
        self.left.pop(job_id, None)
        self.writes += 1

    def links(self) -> list[JobLinks]:
        """What each job needs."""
        return [msgspec.json.decode(msgspec.json.encode(row.job), type=JobLinks) for row in self.rows.values()]

    def wake(self, job_id: JobId, at: datetime) -> None:
        """Sooner, never later."""
        row = self.rows.get(job_id)
        if row is not None and (row.wake_at is None or row.wake_at > at):
            row.wake_at = at
            self.writes += 1

    def wake_all(self, at: datetime) -> None:
        """Sooner, never later, for all that have a wake."""
        for row in self.rows.values():
            if row.wake_at is not None and row.wake_at > at:
                row.wake_at = at
        self.writes += 1

    def lease_due(self, owner: str, now: datetime, until: datetime, limit: int) -> list[JobId]:
        """The longest due first."""
        due = [(row.wake_at, job_id) for job_id, row in self.rows.items() if row.wake_at is not None and row.wake_at <= now]
        taken: list[JobId] = []
        for _, job_id in sorted(due):
            row = self.rows[job_id]
            if len(taken) < limit and row.is_free(now):
                row.lease_owner, row.lease_until, row.wake_at = owner, until, until
                taken.append(JobId(job_id))
        self.writes += bool(taken)
        return taken

    def give_back(self, job_id: JobId, owner: str, wake_at: datetime | None) -> None:
        """A wake that came meanwhile stays."""
        row = self.rows.get(job_id)
        if row is None or row.lease_owner != owner:
            return
        woken = row.wake_at is not None and row.lease_until is not None and row.wake_at < row.lease_until
        if not woken:
            row.wake_at = wake_at
        elif wake_at is not None and row.wake_at is not None:
            row.wake_at = min(row.wake_at, wake_at)
        row.lease_owner = row.lease_until = None
        self.writes += 1

    def hold(self, lease: WorkLease, now: datetime, until: datetime) -> bool:
        """Take or renew a named lease."""
        owner, ends = self.leases.get(lease.name, (lease.owner, until))
        if owner != lease.owner and ends >= now:
            return False
        self.leases[lease.name] = (lease.owner, until)
        self.writes += 1
        return True

    def holder(self, name: str, now: datetime) -> str | None:
        """Who holds a named lease."""
        owner, ends = self.leases.get(name, ("", now))
        return owner if owner and ends >= now else None

    def let_go(self, lease: WorkLease) -> None:
        """End a named lease."""
        if self.leases.get(lease.name, ("", None))[0] == lease.owner:
            del self.leases[lease.name]
            self.writes += 1

    def end_leases(self, owner: str, now: datetime) -> None:
        """Everything an owner held."""
        self.leases = {name: held for name, held in self.leases.items() if held[0] != owner}
        for row in self.rows.values():
            if row.lease_owner == owner:
                row.lease_owner, row.lease_until, row.wake_at = None, None, now
        self.writes += 1

    def next_wake(self) -> datetime | None:
        """The earliest wake."""
        return min((row.wake_at for row in self.rows.values() if row.wake_at is not None), default=None)

    def find(self, selection: Selection) -> list[JobRecord]:
        """Newest submission first."""
        fits = (lambda _: True) if selection.where is None else verdict(selection.where)
        of_study = None if selection.study is None else {child.job_id for child in self.children(selection.study)}
        rows = [row.job for row in self.rows.values() if of_study is None or row.job.id in of_study]
        found = [job for job in rows if _fits(job, selection, self.studies) and fits(job)]
        return sorted(found, key=lambda job: (job.submitted_at, job.id), reverse=True)[: selection.limit]

    def unfinished(self) -> list[JobRecord]:
        """Oldest submission first."""
        found = [row.job for row in self.rows.values() if row.job.phase is not Phase.FINISHED]
        return sorted(found, key=lambda job: (job.submitted_at, job.id))

    def resolve(self, text: str) -> list[JobId]:
        """An id, a name, a prefix, or ``last``."""
        newest = sorted(self.rows.values(), key=lambda row: (row.job.submitted_at, row.job.id), reverse=True)
        if text == "last":
            return [row.job.id for row in newest[:1]]
        if text in self.rows:
            return [JobId(text)]
        named = [row.job.id for row in newest if row.job.spec.name == text]
        return named[:1] or [JobId(job_id) for job_id in sorted(self.rows) if job_id.startswith(text)][:10]

    def story(self, job_id: JobId) -> list[StoryLine]:
        """All lines in order."""
        row = self.rows.get(job_id)
        return [] if row is None else list(row.story)

    def newest_studies(self, limit: int) -> list[StudyRecord]:
        """Newest submission first."""
        return sorted(self.studies.values(), key=lambda study: (study.submitted_at, study.id), reverse=True)[:limit]

    def resolve_study(self, text: str) -> list[str]:
        """An id, a name or a prefix."""
        if text in self.studies:
            return [text]
        named = [study.id for study in self.newest_studies(len(self.studies)) if study.name == text]
        return named[:1] or [study_id for study_id in sorted(self.studies) if study_id.startswith(text)][:10]

    def children(self, study_id: str) -> list[Child]:
        """Of each combination the newest job."""
        newest: dict[int, JobRecord] = {}
        for row in sorted(self.rows.values(), key=lambda row: row.job.submitted_at):
            if row.job.study is not None and row.job.study.id == study_id:
                newest[row.job.study.index] = row.job
        return [Child(job_id=j.id, index=index, phase=j.phase, outcome=j.outcome) for index, j in sorted(newest.items())]

    def continuations(self, job_id: JobId) -> list[JobRecord]:
        """The jobs that go on from this one."""
        found = [row.job for row in self.rows.values() if row.job.continues is not None and row.job.continues.source == job_id]
        return sorted(found, key=lambda job: (job.submitted_at, job.id))

    def _wrote(self, job: JobRecord) -> None:
        self.writes += 1
        self._on_recorded(job)


class DatabaseDoor:
    """The database as one party reaches it."""

    def __init__(self, who: Party, net: Net, tables: Tables) -> None:
        self._who, self._net, self._tables = who, net, tables

    async def _ask(self, effect: Callable[[], T]) -> T:
        return await self._net.call(self._who, "database", effect, DatabaseUnavailable)

    async def add(self, job: JobRecord, lines: Sequence[StoryLine], wake_at: datetime | None) -> None:
        """Store a new job. Repeatable: a second try raises RevisionConflict."""
        await self._ask(partial(self._tables.add, job, lines, wake_at))

    async def add_many(self, jobs: Sequence[NewJob], study: StudyRecord | None = None) -> None:
        """Store new jobs, all or nothing. Repeatable as `add` is."""
        await self._ask(partial(self._tables.add_many, jobs, study))

    async def commit_many(self, changes: Sequence[Change], *, under: WorkLease | None = None) -> list[JobId]:
        """Store what has not moved on. Repeatable."""
        return await self._ask(partial(self._tables.commit_many, changes, under))

    async def load(self, job_id: JobId) -> JobRecord | None:
        """The newest record. Repeatable."""
        return await self._ask(partial(self._tables.load, job_id))

    async def commit(
        self,
        job: JobRecord,
        *,
        expect_revision: int,
        lines: Sequence[StoryLine] = (),
        wake_at: datetime | None = None,
        under: WorkLease | None = None,
    ) -> JobRecord:
        """Compare and set; may have happened if it raised DatabaseUnavailable."""

        def compare_and_set() -> JobRecord:
            try:
                self._refuse_by_chance(job)
                return self._tables.commit(job, expect_revision, lines, wake_at, under)
            except RevisionConflict:
                self._net.counts["database conflict"] += 1
                raise

        return await self._ask(compare_and_set)

    def _refuse_by_chance(self, job: JobRecord) -> None:
        """Two that write at once may both be told to begin anew, whatever they write."""
        chance = self._net.luck["database"].conflict
        if chance and self._net.rng.random() < chance:
            raise RevisionConflict(f"job {job.id} could not be written beside another writer")

    async def remove(self, job_id: JobId, *, expect_revision: int) -> None:
        """Take a finished job away; may have happened if it raised DatabaseUnavailable."""
        await self._ask(partial(self._tables.remove, job_id, expect_revision))

    async def leftovers(self) -> list[Leftover]:
        """What is left to clear. Repeatable."""
        return await self._ask(lambda: [self._tables.left[job_id] for job_id in sorted(self._tables.left)])

    async def cleared(self, job_id: JobId) -> None:
        """Nothing of a removed job is left. Repeatable."""
        await self._ask(partial(self._tables.cleared, job_id))

    async def links(self) -> list[JobLinks]:
        """What each job needs. Repeatable."""
        return await self._ask(self._tables.links)

    async def wake(self, job_id: JobId, at: datetime) -> None:
        """Look sooner. Repeatable."""
        await self._ask(partial(self._tables.wake, job_id, at))

    async def wake_all(self, at: datetime) -> None:
        """Look sooner at everything. Repeatable."""
        await self._ask(partial(self._tables.wake_all, at))

    async def lease_due(self, owner: str, now: datetime, until: datetime, limit: int) -> list[JobId]:
        """Take work leases."""
        return await self._ask(partial(self._tables.lease_due, owner, now, until, limit))

    async def give_back(self, job_id: JobId, owner: str, wake_at: datetime | None) -> None:
        """End a work lease. Repeatable."""
        await self._ask(partial(self._tables.give_back, job_id, owner, wake_at))

    async def hold(self, lease: WorkLease, now: datetime, until: datetime) -> bool:
        """Take or renew a named lease. Repeatable."""
        return await self._ask(partial(self._tables.hold, lease, now, until))

    async def holder(self, name: str, now: datetime) -> str | None:
        """Who holds a named lease. Repeatable."""
        return await self._ask(partial(self._tables.holder, name, now))

    async def let_go(self, lease: WorkLease) -> None:
        """End a named lease. Repeatable."""
        await self._ask(partial(self._tables.let_go, lease))

    async def end_leases(self, owner: str, now: datetime) -> None:
        """End everything an owner held. Repeatable."""
        await self._ask(partial(self._tables.end_leases, owner, now))

    async def next_wake(self) -> datetime | None:
        """The earliest wake. Repeatable."""
        return await self._ask(self._tables.next_wake)

    async def change_mark(self) -> int:
        """Differs when anybody wrote. Repeatable."""
        return await self._ask(lambda: self._tables.writes)

    async def find(self, selection: Selection) -> list[JobRecord]:
        """Newest first. Repeatable."""
        return await self._ask(partial(self._tables.find, selection))

    async def unfinished(self) -> list[JobRecord]:
        """Oldest first. Repeatable."""
        return await self._ask(self._tables.unfinished)

    async def resolve(self, text: str) -> list[JobId]:
        """An id, a name, a prefix, or ``last``. Repeatable."""
        return await self._ask(partial(self._tables.resolve, text))

    async def story(self, job_id: JobId) -> list[StoryLine]:
        """All lines in order. Repeatable."""
        return await self._ask(partial(self._tables.story, job_id))

    async def load_study(self, study_id: str) -> StudyRecord | None:
        """What was asked. Repeatable."""
        return await self._ask(partial(self._tables.studies.get, study_id))

    async def studies(self, limit: int) -> list[StudyRecord]:
        """Newest first. Repeatable."""
        return await self._ask(partial(self._tables.newest_studies, limit))

    async def resolve_study(self, text: str) -> list[str]:
        """An id, a name or a prefix. Repeatable."""
        return await self._ask(partial(self._tables.resolve_study, text))

    async def children(self, study_id: str) -> list[Child]:
        """Of each combination the newest job. Repeatable."""
        return await self._ask(partial(self._tables.children, study_id))

    async def continuations(self, job_id: JobId) -> list[JobRecord]:
        """The jobs that go on from this one. Repeatable."""
        return await self._ask(partial(self._tables.continuations, job_id))

    async def close(self) -> None:
        """Nothing to let go of. Repeatable."""


class DirectDatabase(DatabaseDoor):
    """The tables without a net between, for threads: what the conformance suite looks at."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()

    async def commit(
        self,
        job: JobRecord,
        *,
        expect_revision: int,
        lines: Sequence[StoryLine] = (),
        wake_at: datetime | None = None,
        under: WorkLease | None = None,
    ) -> JobRecord:
        """Compare and set."""
        return await self._ask(partial(self._tables.commit, job, expect_revision, lines, wake_at, under))

    async def _ask(self, effect: Callable[[], T]) -> T:
        with self._lock:
            return effect()


def _fits(job: JobRecord, wanted: Selection, studies: Container[str]) -> bool:
    return (
        (not wanted.phases or job.phase in wanted.phases)
        and (not wanted.outcomes or job.outcome in wanted.outcomes)
        and (not wanted.without_studies or job.study is None or job.study.id not in studies)
        and (wanted.name is None or job.spec.name == wanted.name)
        and all(job.spec.tags.get(name) == value for name, value in wanted.tags)
        and (wanted.submitted_after is None or job.submitted_at >= wanted.submitted_after)
        and (wanted.submitted_before is None or job.submitted_at < wanted.submitted_before)
    )
