"""What may people ask of a study? Submit it, find it, stop it, go on with it: each as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from trainmaster.control.observe import Ports
from trainmaster.control.service import Service
from trainmaster.core.decide import decide, request_stop
from trainmaster.core.facts import Facts, Seen, Sighting
from trainmaster.core.job import JobId, JobRecord, Outcome, Reason, StopRequest
from trainmaster.core.messages import job_file
from trainmaster.core.study import Child, StudyRecord
from trainmaster.core.submission import submitted_line
from trainmaster.errors import Refused, RevisionConflict, UnknownJob
from trainmaster.ports.database import Change, NewJob, Selection
from trainmaster.spec import layout

_ALL = 1_000_000


class Studies:
    """The use cases; the same for the command line and notebooks."""

    def __init__(self, ports: Ports, service: Service) -> None:
        self._ports, self._service = ports, service

    async def accept(self, jobs: Sequence[JobRecord], study: StudyRecord | None = None) -> None:
        """Accept all of them or none. They are alike but for their parameters: what can never run is seen in the first."""
        await self._service.refuse_impossible(jobs[0].spec)
        nothing = Facts(allocation=Sighting(seen=Seen.GONE))
        new: list[NewJob] = []
        now = self._ports.clock.now()
        for job in jobs:
            # The placer looks at the queue whenever it changes: nobody needs to look at each job now.
            wake_at = decide(job, nothing, now, self._ports.timing).wake_at
            new.append(NewJob(job=job, lines=(submitted_line(job),), wake_at=wake_at or now))
        # One spec tells other homes that share the store which code is needed; the others come with the first attempts.
        await self._ports.store.put(layout.spec(jobs[0].id), msgspec.json.encode(job_file(jobs[0])))
        try:
            await self._ports.database.add_many(new, study)
        except RevisionConflict as error:
            raise Refused("somebody else submitted these jobs at the same moment", hint="`trainmaster list` shows them") from error

    async def get(self, study_id: str) -> StudyRecord:
        """The record of a study that exists."""
        study = await self._ports.database.load_study(study_id)
        if study is None:
            raise UnknownJob(f"there is no study {study_id}", hint="`trainmaster list` shows the studies there are")
        return study

    async def resolve(self, text: str) -> str:
        """The one study meant by an id, a unique prefix or a name."""
        found = await self._ports.database.resolve_study(text) if text else []
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownJob(f'"{text}" could be any of: {", ".join(found)}', hint="give more letters of the id")
        raise UnknownJob(f'no study is called "{text}"', hint="`trainmaster list` shows the studies there are")

    async def find(self, text: str) -> StudyRecord | None:
        """The study that is meant where a job may be meant, too: a job's own id or newer name goes first."""
        found = await self._ports.database.resolve_study(text) if text and text != "last" else []
        if len(found) != 1:
            return None
        study = await self.get(found[0])
        named = await self._ports.database.resolve(text)
        job = await self._ports.database.load(named[0]) if len(named) == 1 else None
        if job is None or study.id == text or text not in {job.id, job.spec.name}:
            return study
        return study if study.name == text and job.id != text and study.submitted_at > job.submitted_at else None

    async def children(self, study_id: str) -> list[Child]:
        """Of each combination the newest job, in order."""
        return await self._ports.database.children(study_id)

    async def jobs(self, study_id: str) -> list[JobRecord]:
        """The records of the same."""
        found = await self._ports.database.find(Selection(study=study_id, limit=_ALL))
        return sorted(found, key=lambda job: job.study.index if job.study is not None else 0)

    async def everything(self, study_id: str) -> list[JobRecord]:
        """All its jobs, also those that others went on from."""
        ids = [links.id for links in await self._ports.database.links() if links.study is not None and links.study.id == study_id]
        found = [await self._ports.database.load(JobId(job_id)) for job_id in ids]
        return [job for job in found if job is not None]

    async def stop(self, study_id: str, by: str, sentence: str) -> int:
        """Ask every job of it to stop; how many were asked."""
        reason = Reason(code="stopped", sentence=sentence)
        asked: set[JobId] = set()
        while True:
            stop = StopRequest(at=self._ports.clock.now(), by=by, reason=reason)
            decisions = [(job, request_stop(job, stop)) for job in await self.jobs(study_id)]
            changes = [Change(job=d.job, lines=d.lines, wake_at=d.wake_at) for job, d in decisions if d.job != job]
            if not changes:
                return len(asked)
            # Those that moved on meanwhile are asked again as they are now.
            asked |= set(await self._ports.database.commit_many(changes))

    async def to_resume(self, study_id: str) -> list[JobRecord]:
        """Those that were stopped or failed; what runs goes on anyway, and what succeeded is left alone."""
        return [job for job in await self.jobs(study_id) if job.outcome in {Outcome.STOPPED, Outcome.FAILED}]


def in_one_batch(jobs: Sequence[JobRecord]) -> list[JobRecord]:
    """Jobs of a study that are submitted together: one environment is kept for them, under the first one's name."""
    return [job if job.study is None else replace(job, study=replace(job.study, batch=jobs[0].id)) for job in jobs]
