"""How is a job deleted, what may be pruned, and what takes how much room?

A job goes in this order, so that a kill anywhere leaves nothing half shown and nothing for ever:

1. In one transaction its record and story go, and a note comes: the job is shown no more, and no other can take its id. This
   happens while nobody submits, so that no new job can begin to need it between our look and its end.
2. Its spec in the store goes, so that a machine that comes late finds no job; then everything below its prefix, and what the home
   holds of it.
3. Its snapshot of code goes, if no job has it: neither one that is remembered, nor one in the store that this home does not know.
   While we cannot read what such a job needs, no code goes.
4. The note goes.

Whoever keeps house next finds the notes that are left and goes on at 2. A job whose model is kept loses checkpoints, logs and
outputs; its record stays as it is, and `pruned.json` says when it was.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec

from trainmaster.control.observe import Ports
from trainmaster.core import house
from trainmaster.core.house import Item, JobLinks, Plan, Wish
from trainmaster.core.job import JobId, JobRecord, Phase
from trainmaster.core.messages import PrunedFile
from trainmaster.errors import Refused, RevisionConflict, TrainmasterError
from trainmaster.ports.database import Leftover, Selection, WorkLease
from trainmaster.ports.home import Home
from trainmaster.ports.object_store import Entry
from trainmaster.spec import layout
from trainmaster.spec.layout import Key

_log = logging.getLogger("trainmaster.driver")
#: What nobody knows may belong to a submission that is going on; so long it does not take.
UNKNOWN_S = 24 * 3600.0
_ALL = 10_000_000
_BATCH = 50
_AT_ONCE = 16
_SETTLE_S, _SETTLE_POLL_S = 20.0, 0.1
#: How often it is asked whether today's pruning is done.
_ASK_S = 3600.0


class _Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs in the store that this home does not know: another home's, or those of a database that was lost."""

    links: tuple[JobLinks, ...] = ()
    #: jobs of which we cannot read what they need
    unreadable: tuple[str, ...] = ()


class House:
    """Deleting and pruning for one home; everything may be repeated, and several may do it at once."""

    def __init__(self, ports: Ports, home: Home) -> None:
        self._ports, self._home = ports, home
        self._foreign: _Foreign | None = None

    # -- deleting

    async def delete(self, jobs: Sequence[JobRecord]) -> list[JobId]:
        """Remove finished jobs whole, all or, where one may not go, none; who went. Others may have been faster."""
        self._foreign = None
        await self.finish()
        why = house.why_kept(jobs, await self._links())
        for job in jobs:
            if job.id in why:
                hint = "delete both, or keep both" if why[job.id].endswith("needs it") else "wait for it, or stop it first"
                raise Refused(f"{job.id} cannot be deleted: {why[job.id]}", hint=hint)
        gone: list[JobId] = []
        # The newest first: who needs another is younger, and nobody ever needs what is gone.
        ordered = sorted(jobs, key=lambda job: (job.submitted_at, job.id), reverse=True)
        for start in range(0, len(ordered), _BATCH):
            gone += await self._delete_some(ordered[start : start + _BATCH])
        return gone

    async def finish(self) -> list[Leftover]:
        """Go on with every deletion that was begun and is not done; what was done."""
        left = await self._ports.database.leftovers()
        await self._clear(left)
        return left

    async def _delete_some(self, jobs: Sequence[JobRecord]) -> list[JobId]:
        """Step 1 for all of them, then the rest. Who has just finished is sealed in a moment, and waited for."""
        left, gone = list(jobs), list[Leftover]()
        for _ in range(int(_SETTLE_S / _SETTLE_POLL_S)):
            left = await self._remove_records(left, gone)
            if not left:
                break
            await self._ports.clock.sleep(_SETTLE_POLL_S)
        await self._clear(gone)
        if left:
            raise Refused(f"the end of {left[0].id} is still being written down", hint="try again in a moment")
        return [leftover.job_id for leftover in gone]

    async def _remove_records(self, jobs: Sequence[JobRecord], gone: list[Leftover]) -> list[JobRecord]:
        """Add those that went to `gone`; the answer are those that somebody still looks after."""
        unsettled: list[JobRecord] = []
        async with self._alone() as nobody_submits:
            _refuse_rush(nobody_submits=nobody_submits)
            why = house.why_kept(jobs, await self._links())
            for job in jobs:
                if job.id in why:
                    continue  # somebody began to need it since we looked
                try:
                    await self._ports.database.remove(job.id, expect_revision=job.revision)
                except RevisionConflict:
                    if await self._ports.database.load(job.id) == job:
                        unsettled.append(job)
                    continue  # or somebody else was faster
                gone.append(Leftover(job_id=job.id, code=job.code.sha256))
        return unsettled

    async def _clear(self, left: Sequence[Leftover]) -> None:
        """Steps 2 to 4 for jobs whose record is gone."""
        for leftover in left:
            await self._clear_files(leftover.job_id)
        await self._drop_codes({leftover.code for leftover in left if leftover.code is not None})
        for leftover in left:
            await self._ports.database.cleared(leftover.job_id)

    async def _clear_files(self, job_id: str) -> None:
        await self._ports.store.delete_prefix(layout.spec(job_id))
        await self._ports.store.delete_prefix(layout.job(job_id))
        self._home.forget(job_id)

    async def _drop_codes(self, wanted: Iterable[str]) -> list[str]:
        """Remove those snapshots that no job has; none while somebody submits: then prune finds them later."""
        codes = sorted(set(wanted) - house.codes_in_use(await self._ports.database.links()))
        if not codes or (await self._others()).unreadable:
            return []
        gone: list[str] = []
        async with self._alone() as nobody_submits:
            in_use = house.codes_in_use(await self._links())
            for code in codes if nobody_submits else ():
                if code not in in_use:
                    await self._ports.store.delete_prefix(layout.code(code))
                    gone.append(code)
        return gone

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[bool]:
        """Waited for in a thread: whoever keeps house may be driving jobs, too."""
        lock = self._home.alone()
        nobody_submits = await asyncio.to_thread(lock.__enter__)
        try:
            yield nobody_submits
        finally:
            lock.__exit__(None, None, None)

    async def _links(self) -> list[JobLinks]:
        """What each job needs: of this home as they are now, of others as they were when we looked."""
        return [*await self._ports.database.links(), *(await self._others()).links]

    async def _others(self) -> _Foreign:
        if self._foreign is None:
            self._foreign = await self._read_others(
                key.rpartition("/")[2] for key in await self._ports.store.list_folders(Key("jobs"))
            )
        return self._foreign

    async def _read_others(self, job_ids: Iterable[str]) -> _Foreign:
        """What those jobs need that this home does not know, several asked for at once."""
        ours = {links.id for links in await self._ports.database.links()} | set(self._home.unborn(UNKNOWN_S))
        ours |= {str(leftover.job_id) for leftover in await self._ports.database.leftovers()}
        theirs, slots = [job_id for job_id in job_ids if job_id not in ours], asyncio.Semaphore(_AT_ONCE)

        async def read(job_id: str) -> JobLinks | str | None:
            async with slots:
                return await self._read_one(job_id)

        found = await asyncio.gather(*map(read, theirs))
        return _Foreign(
            links=tuple(one for one in found if isinstance(one, JobLinks)),
            unreadable=tuple(one for one in found if isinstance(one, str)),
        )

    async def _read_one(self, job_id: str) -> JobLinks | str | None:
        """A job that is over has sealed its record, which tells more than its spec. Its id: what is there cannot be read."""
        is_there = False
        for key in (layout.record(job_id), layout.spec(job_id)):
            value = await self._ports.store.get(key)
            if value is not None and (links := _read_links(value)) is not None:
                return links
            is_there |= value is not None
        return job_id if is_there else None

    # -- pruning

    async def plan(self, wish: Wish) -> Plan:
        """Everything that would go now; nothing is changed."""
        now = self._ports.clock.now()
        by_job: dict[str, list[Entry]] = {}
        for entry in await self._ports.store.list_keys(layout.Key("jobs")):
            job_id = house.job_of(entry.key)
            if job_id is not None:
                by_job.setdefault(job_id, []).append(entry)
        links = await self._ports.database.links()
        chosen = await self._chosen(wish, now)
        self._foreign = await self._read_others(by_job)
        why = house.why_kept(chosen, [*links, *self._foreign.links])
        going = [job for job in chosen if job.id not in why]
        items = [item for job in going if (item := _job_item(job, by_job.get(job.id, []), now, wish)) is not None]
        items += await self._leftover_items(wish, links, by_job, now)
        gone = {str(job.id) for job in going} if not wish.keep_models else set()
        codes = await self._code_items([*links, *self._foreign.links], gone, now)
        if self._foreign.unreadable and codes:
            why |= dict.fromkeys(self._foreign.unreadable, "its spec.json cannot be read; while it lies there no code goes")
        else:
            items += codes
        items += [
            Item(kind="packing", name=name, size_bytes=size, why="left by a submission that was killed")
            for name, size in self._home.old_packing(UNKNOWN_S)
        ]
        return Plan(items=tuple(items), going=frozenset(job.id for job in going), kept=tuple(sorted(why.items())))

    async def _chosen(self, wish: Wish, now: datetime) -> list[JobRecord]:
        if wish.older_than_s is None:
            return []
        before = now - timedelta(seconds=wish.older_than_s)
        selection = Selection(
            phases=(Phase.FINISHED,),
            outcomes=wish.outcomes,
            name=wish.name,
            tags=wish.tags,
            where=wish.where,
            submitted_before=before,
            limit=_ALL,
        )
        found = await self._ports.database.find(selection)
        found = [job for job in found if wish.study is None or (job.study is not None and job.study.id == wish.study)]
        return [job for job in found if job.finished_at is not None and job.finished_at <= before]

    async def _leftover_items(
        self, wish: Wish, links: Sequence[JobLinks], by_job: dict[str, list[Entry]], now: datetime
    ) -> list[Item]:
        """What was begun and became no job, or was deleted and is not cleared; with `unknown`, also what nobody here knows."""
        known = {job.id for job in links}
        ours = known | house.references(links).keys()
        whys = {leftover.job_id: "its deletion was not done" for leftover in await self._ports.database.leftovers()}
        unborn = {job_id: "never became a job" for job_id in self._home.unborn(UNKNOWN_S) if job_id not in known}
        left = {**unborn, **{str(job_id): why for job_id, why in whys.items()}}
        items = [_entries_item("leftover", job_id, by_job.get(job_id, []), why) for job_id, why in sorted(left.items())]
        old_s = (now - timedelta(seconds=UNKNOWN_S)).timestamp()
        for job_id, entries in by_job.items() if wish.unknown else ():
            if job_id not in ours and job_id not in left and max(entry.modified_at_s for entry in entries) <= old_s:
                items.append(_entries_item("unknown", job_id, entries, "another home may have it"))
        return items

    async def _code_items(self, links: Sequence[JobLinks], gone: Collection[str], now: datetime) -> list[Item]:
        """Snapshots that nobody has any more; a young one may be of a job that is just being submitted."""
        in_use = house.codes_in_use(job for job in links if job.id not in gone)
        freed = house.codes_in_use(job for job in links if job.id in gone)
        old_s = (now - timedelta(seconds=UNKNOWN_S)).timestamp()
        return [
            Item(kind="code", name=code, size_bytes=entry.size_bytes, why="no other job has it")
            for entry in await self._ports.store.list_keys(layout.Key("code"))
            if (code := house.code_of(entry.key)) is not None
            and code not in in_use
            and (code in freed or entry.modified_at_s <= old_s)
        ]

    async def carry_out(self, plan: Plan) -> AsyncIterator[Item]:
        """Do it, and tell what went; what somebody else did, or began to need, is passed over."""
        jobs = [item.job for item in plan.items if item.kind == "job" and item.job is not None]
        by_id = {item.name: item for item in plan.items if item.kind == "job"}
        for start in range(0, len(jobs), _BATCH):
            for job_id in await self._delete_some(jobs[start : start + _BATCH]):
                yield by_id[job_id]
        cleared = {str(leftover.job_id) for leftover in await self.finish()}
        codes = {item.name: item for item in plan.items if item.kind == "code"}
        for code in await self._drop_codes(codes):
            yield codes[code]
        thin = [item for item in plan.items if item.kind == "model_kept"]
        for start in range(0, len(thin), _BATCH):
            for item in await self._thin_some(thin[start : start + _BATCH], plan):
                yield item
        for item in plan.items:
            is_left = item.kind in {"leftover", "unknown", "packing"}
            if is_left and (item.name in cleared or await self._carry_out_one(item)):
                yield item

    async def _carry_out_one(self, item: Item) -> bool:
        if item.kind == "packing":
            self._home.drop_packing(item.name)
            return True
        with self._home.nobody_imports() as is_free:
            is_given_up = item.kind == "unknown" or self._home.is_unborn(item.name, UNKNOWN_S)
            if not is_free or not is_given_up or await self._ports.database.load(JobId(item.name)) is not None:
                return False  # somebody is at it, or it became a job after all
            await self._clear_files(item.name)
        return True

    async def _thin_some(self, items: Sequence[Item], plan: Plan) -> list[Item]:
        """Checkpoints, logs and outputs go; first it is written down, while nobody submits, so that nobody wonders."""
        said = msgspec.json.encode(PrunedFile(at=self._ports.clock.now()))
        thinned: list[Item] = []
        async with self._alone() as nobody_submits:
            _refuse_rush(nobody_submits=nobody_submits)
            links = await self._links()
            needed_by, known = house.references(links), {job.id for job in links}
            for item in items:
                if item.name in known and not set(needed_by.get(item.name, ())) - plan.going:
                    await self._ports.store.put(layout.pruned(item.name), said)
                    thinned.append(item)
        for item in thinned:
            for key in item.keys:
                await self._ports.store.delete_prefix(key)
        return thinned

    # -- retention

    async def is_due(self, wish: Wish | None) -> bool:
        """Whether today's pruning is left to do."""
        return wish is not None and await self._ports.database.holder("retention", self._ports.clock.now()) is None

    async def keep(self, wish: Wish, over: asyncio.Event) -> None:
        """Prune once a day until it is over; what was begun is done first. After trouble it is tried again within the day."""
        while True:
            try:
                await self._keep_today(wish)
            except (TrainmasterError, OSError) as error:
                _log.warning("retention could not be done and is tried again later: %s", error)
            try:
                await asyncio.wait_for(over.wait(), _ASK_S)
            except TimeoutError:
                continue
            return

    async def _keep_today(self, wish: Wish) -> None:
        now = self._ports.clock.now()
        # Held by nobody who lives, so that it is held until then: a while for a try, and for the day once it is done.
        today = WorkLease(name="retention", owner=f"retention-{secrets.token_hex(4)}")
        if not await self._ports.database.hold(today, now, now + timedelta(seconds=_ASK_S)):
            return
        plan = await self.plan(wish)
        total = 0
        async for item in self.carry_out(plan):
            total += item.size_bytes
            _log.info("retention: removed %s %s: %s, %d bytes", item.kind, item.name, item.why, item.size_bytes)
        await self._ports.database.hold(today, self._ports.clock.now(), now + timedelta(days=1))
        _log.info("retention: %d bytes removed in all; %d jobs stay because others need them", total, len(plan.kept))


def _refuse_rush(*, nobody_submits: bool) -> None:
    if not nobody_submits:
        raise Refused("somebody is submitting a job right now; nothing more was removed", hint="try again in a moment")


def _job_item(job: JobRecord, entries: Sequence[Entry], now: datetime, wish: Wish) -> Item | None:
    assert job.finished_at is not None
    why = f"finished {_ago(now - job.finished_at)} ago"
    if not wish.keep_models:
        item = _entries_item("job", job.id, entries, why)
        return msgspec.structs.replace(item, job=job)
    prefixes = tuple(house.thinned(job.id, [entry.key for entry in entries]))
    going = [entry for entry in entries if any(entry.key.startswith(f"{prefix}/") for prefix in prefixes)]
    if not going:
        return None
    return msgspec.structs.replace(_entries_item("model_kept", job.id, going, why), job=job, keys=prefixes)


def _entries_item(kind: str, name: str, entries: Sequence[Entry], why: str) -> Item:
    return Item(kind=kind, name=name, size_bytes=sum(entry.size_bytes for entry in entries), objects=len(entries), why=why)


def _read_links(value: bytes) -> JobLinks | None:
    try:
        return msgspec.json.decode(value, type=JobLinks)
    except msgspec.DecodeError:
        return None


def _ago(since: timedelta) -> str:
    minutes = int(since.total_seconds() / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"
