"""What may people ask of the control plane? Submit, stop, find, and be told."""

from __future__ import annotations

from datetime import datetime

import msgspec

from trainmaster.control.observe import Ports, commits, markers
from trainmaster.core import checkpoints
from trainmaster.core.decide import request_stop
from trainmaster.core.facts import ExitReport, Heartbeat
from trainmaster.core.job import CheckpointRef, Code, JobId, JobRecord, Origin, Reason, StopRequest
from trainmaster.core.messages import PrunedFile, job_file
from trainmaster.core.schedule import why_never
from trainmaster.core.submission import new_job, submitted_line
from trainmaster.errors import InvalidSpec, Refused, RevisionConflict, UnknownJob
from trainmaster.spec import layout
from trainmaster.spec.job_spec import JobSpec
from trainmaster.spec.support import unknown_provider, unsupported


class Service:
    """The use cases; the same for the command line, the API and notebooks."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def refuse_impossible(self, spec: JobSpec) -> None:
        """Say no before anything is stored: what no machine here can ever do does not become a job."""
        if spec.study is not None:
            hint = "`trainmaster study JOB_FILE` tries every combination of its grid"
            raise InvalidSpec("study", "this describes a study, not one job", hint=hint)
        for path, sentence in unknown_provider(spec, frozenset(self._ports.providers)):
            raise InvalidSpec(path, sentence)
        provider = self._ports.providers[spec.provider]
        lacking = unsupported(spec, provider.features)
        if lacking:
            path, _ = lacking[0]
            raise InvalidSpec(path, "; ".join(sentence for _, sentence in lacking))
        never = why_never(spec, await provider.capacity())
        if never:
            raise Refused(f"this job can never run here: {never}", hint="ask for less, or submit it to a larger machine")

    async def submit(self, job_id: JobId, spec: JobSpec, code: Code, origin: Origin) -> JobRecord:
        """Accept a job. What this returned from is remembered, whatever happens next."""
        return await self.accept(new_job(job_id, spec, code, origin, self._ports.clock.now()))

    async def accept(self, job: JobRecord) -> JobRecord:
        """Accept a job as it is to be remembered."""
        await self.refuse_impossible(job.spec)
        await self._ports.store.put(layout.spec(job.id), msgspec.json.encode(job_file(job)))
        await self._ports.database.add(job, [submitted_line(job)], self._ports.clock.now())
        return job

    async def stop(self, job_id: JobId, by: str, sentence: str) -> JobRecord:
        """Ask a job to end. Stopping what is finished, or stops already, changes nothing."""
        while True:
            job = await self.get(job_id)
            reason = Reason(code="stopped", sentence=sentence)
            decision = request_stop(job, StopRequest(at=self._ports.clock.now(), by=by, reason=reason))
            if decision.job == job:
                return job
            try:
                return await self._ports.database.commit(
                    decision.job, expect_revision=job.revision, lines=decision.lines, wake_at=decision.wake_at
                )
            except RevisionConflict:
                continue  # the job moved on; ask again of what it is now

    async def get(self, job_id: JobId) -> JobRecord:
        """The record of a job that exists."""
        job = await self._ports.database.load(job_id)
        if job is None:
            raise UnknownJob(f"there is no job {job_id}", hint="`trainmaster list` shows the jobs there are")
        return job

    async def resolve(self, text: str) -> JobId:
        """The one job meant by an id, a unique prefix, a name, or ``last``."""
        found = await self._ports.database.resolve(text) if text else []
        if len(found) == 1:
            return found[0]
        for study_id in await self._ports.database.resolve_study(text) if text else []:
            hint = f"`trainmaster show {study_id}` lists them"
            raise UnknownJob(f"{study_id} is a study: name one of its jobs", hint=hint)
        if found:
            raise UnknownJob(f'"{text}" could be any of: {", ".join(found)}', hint="give more letters of the id")
        if text == "last":
            raise UnknownJob("there is no job yet", hint="`trainmaster run train.py` makes one")
        raise UnknownJob(f'no job is called "{text}"', hint="`trainmaster list` shows the jobs there are")

    async def heartbeat(self, job: JobRecord) -> Heartbeat | None:
        """What the runner of the newest attempt last said; None when it said nothing yet."""
        if not job.attempts:
            return None
        value = await self._ports.store.get(layout.heartbeat(job.id, job.attempt))
        return None if value is None else msgspec.json.decode(value, type=Heartbeat)

    async def exit_report(self, job: JobRecord) -> ExitReport | None:
        """How the newest attempt ended on its machine; None while it has not."""
        if not job.attempts:
            return None
        value = await self._ports.store.get(layout.exit_record(job.id, job.attempt))
        return None if value is None else msgspec.json.decode(value, type=ExitReport)

    async def checkpoints(self, job: JobRecord) -> list[tuple[CheckpointRef, bool]]:
        """Every commit, oldest first, and whether it is accepted."""
        found = sorted(await commits(job.id, self._ports.store), key=lambda c: layout.parse_checkpoint_id(c.id))
        return [(ref, checkpoints.is_accepted(job, ref.id)) for ref in found]

    async def damaged_checkpoints(self, job: JobRecord) -> list[str]:
        """Checkpoints that do not count because their marker cannot be read, by name."""
        return [name for name, ref in await markers(job.id, self._ports.store) if ref is None]

    async def pruned_at(self, job: JobRecord) -> datetime | None:
        """When everything but record, story, metrics and model was removed; None: it is all there."""
        value = await self._ports.store.get(layout.pruned(job.id)) if job.is_finished else None
        return None if value is None else msgspec.json.decode(value, type=PrunedFile).at
