"""What do we need of a database? Records with a revision, their stories, wakes and leases.

Promises, checked by testing/conformance/database.py:

1. What `add` and `commit` returned from is durable. Record, story lines and wake change together or not at all.
2. `commit` succeeds only against the revision that was loaded; of racing committers one wins, the others get RevisionConflict.
3. A work lease is held by one owner until its time; an expired one may be taken by anybody.
4. DatabaseUnavailable means that it may have happened; repeating `add` or `commit` after it is safe: the second try of the same
   write either succeeds or raises RevisionConflict.
5. `remove` takes record and story away at one moment and leaves a note of what else the job had, until `cleared` says that it is
   gone. As long as there is the note, no job of that id can be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from trainmaster.core.house import JobLinks
from trainmaster.core.job import JobId, JobRecord, Outcome, Phase
from trainmaster.core.search import Search
from trainmaster.core.story import StoryLine
from trainmaster.core.study import Child, StudyRecord


class Selection(Struct, frozen=True, kw_only=True):
    """Which jobs; everything given must hold."""

    phases: tuple[Phase, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    name: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    submitted_after: datetime | None = None
    submitted_before: datetime | None = None
    where: Search | None = None
    #: of this study, and of each combination only the newest job
    study: str | None = None
    #: leave out the jobs of studies that are here; one that came from elsewhere without its study stands for itself
    without_studies: bool = False
    limit: int = 100


class NewJob(Struct, frozen=True, kw_only=True):
    """A job to be stored, with the first lines of its story."""

    job: JobRecord
    lines: tuple[StoryLine, ...]
    wake_at: datetime


class Change(Struct, frozen=True, kw_only=True):
    """What shall be remembered of a job that was loaded at its record's revision."""

    job: JobRecord
    lines: tuple[StoryLine, ...] = ()
    wake_at: datetime | None = None


class WorkLease(Struct, frozen=True, kw_only=True):
    """A named right to work, held by one owner."""

    name: str
    owner: str


class Leftover(Struct, frozen=True, kw_only=True):
    """A job whose record is gone, and whose files may still be there."""

    job_id: JobId
    #: its snapshot of code, which others may have, too
    code: str | None = None


class Database(Protocol):
    """What is remembered."""

    async def add(self, job: JobRecord, lines: Sequence[StoryLine], wake_at: datetime | None) -> None:
        """Store a new job; without a wake nobody looks at it. RevisionConflict if the id exists, or files of it may be left.

        Repeatable: a second try of the same job raises RevisionConflict.
        """
        ...

    async def add_many(self, jobs: Sequence[NewJob], study: StudyRecord | None = None) -> None:
        """Store new jobs, and the study they belong to when that is new: all or nothing. RevisionConflict if one of the ids exists.

        Repeatable as `add` is.
        """
        ...

    async def commit_many(self, changes: Sequence[Change], *, under: WorkLease | None = None) -> list[JobId]:
        """Store what is still at the revision of its record, in one step; the ids of those. Others have moved on: look again.

        Nothing is stored, and no id comes back, if `under` names a lease that its owner no longer holds. Repeatable: what was
        stored has moved on.
        """
        ...

    async def load(self, job_id: JobId) -> JobRecord | None:
        """The newest record, or None for an unknown id. Repeatable."""
        ...

    async def commit(
        self,
        job: JobRecord,
        *,
        expect_revision: int,
        lines: Sequence[StoryLine] = (),
        wake_at: datetime | None = None,
        under: WorkLease | None = None,
    ) -> JobRecord:
        """Store `job` as revision `expect_revision` + 1 and return it so.

        RevisionConflict if the stored revision is another, or if `under` names a lease that its owner no longer holds. May have
        happened if it raised DatabaseUnavailable; then a repetition raises RevisionConflict.
        """
        ...

    async def remove(self, job_id: JobId, *, expect_revision: int) -> None:
        """Take a finished job's record and story away, and note what is left to clear; the last of a study takes that with it.

        RevisionConflict if the stored revision is another, the job has not finished, or somebody has still to look at it. May have
        happened if it raised DatabaseUnavailable; then a repetition raises RevisionConflict.
        """
        ...

    async def leftovers(self) -> list[Leftover]:
        """Removed jobs whose files may still be there, by id. Repeatable."""
        ...

    async def cleared(self, job_id: JobId) -> None:
        """Nothing of a removed job is left. Repeatable; nothing for an unknown id."""
        ...

    async def links(self) -> list[JobLinks]:
        """What each job needs, in any order. Repeatable."""
        ...

    async def wake(self, job_id: JobId, at: datetime) -> None:
        """Look at this job at `at` or sooner. Repeatable; nothing for an unknown id."""
        ...

    async def wake_all(self, at: datetime) -> None:
        """Look at every job that has a wake at `at` or sooner. Repeatable."""
        ...

    async def lease_due(self, owner: str, now: datetime, until: datetime, limit: int) -> list[JobId]:
        """Take the work leases of up to `limit` jobs that are due and whose lease is free or expired; the longest due first."""
        ...

    async def give_back(self, job_id: JobId, owner: str, wake_at: datetime | None) -> None:
        """End a work lease and set the next wake, unless the job was woken sooner meanwhile. Repeatable; nothing if not held."""
        ...

    async def hold(self, lease: WorkLease, now: datetime, until: datetime) -> bool:
        """Take or renew a named lease; False if somebody else holds it. Repeatable."""
        ...

    async def holder(self, name: str, now: datetime) -> str | None:
        """Who holds a named lease; None when it is free or its time is over. Only looks, so nobody is kept from it. Repeatable."""
        ...

    async def let_go(self, lease: WorkLease) -> None:
        """End a named lease. Repeatable; nothing if not held."""
        ...

    async def end_leases(self, owner: str, now: datetime) -> None:
        """End every lease of an owner that is known to be gone, named or of a job; its jobs are due at `now`. Repeatable."""
        ...

    async def next_wake(self) -> datetime | None:
        """The earliest wake of an unfinished step; None when nothing is left to do."""
        ...

    async def change_mark(self) -> int:
        """A number that differs from the last answer when anybody may have written since."""
        ...

    async def find(self, selection: Selection) -> list[JobRecord]:
        """Jobs of a selection, newest submission first. Repeatable."""
        ...

    async def unfinished(self) -> list[JobRecord]:
        """All jobs that are not finished, oldest submission first. Repeatable."""
        ...

    async def resolve(self, text: str) -> list[JobId]:
        """Ids meant by an id, a unique prefix, a name, or ``last``; a name means its newest job. Empty when nothing fits."""
        ...

    async def story(self, job_id: JobId) -> list[StoryLine]:
        """All lines of a job, in the order they were committed. Repeatable."""
        ...

    async def load_study(self, study_id: str) -> StudyRecord | None:
        """What was asked, or None for an unknown id. Repeatable."""
        ...

    async def studies(self, limit: int) -> list[StudyRecord]:
        """Newest submission first. Repeatable."""
        ...

    async def resolve_study(self, text: str) -> list[str]:
        """Ids meant by an id, a name or a prefix; a name means its newest study. Empty when nothing fits."""
        ...

    async def children(self, study_id: str) -> list[Child]:
        """Of each combination the newest job, in order; cheap, also for thousands. Empty for an unknown id. Repeatable."""
        ...

    async def continuations(self, job_id: JobId) -> list[JobRecord]:
        """The jobs that go on from a checkpoint of this one, oldest first. Repeatable.

        `core.house.needs_checkpoint_of` tells which of them still need it.
        """
        ...

    async def close(self) -> None:
        """Let go of files and connections. Repeatable."""
        ...
