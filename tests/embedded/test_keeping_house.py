"""Two who keep house, or one who does while another works: who may remove what?"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from trainmaster.config import read_config
from trainmaster.control.house import House
from trainmaster.core.house import Wish
from trainmaster.core.job import CheckpointRef, Code, Continues, JobId, Outcome, Phase, StudyRef
from trainmaster.core.messages import job_file
from trainmaster.embedded import opened
from trainmaster.errors import Refused, StoreUnavailable
from trainmaster.spec import layout
from trainmaster.spec.layout import Key
from trainmaster.testing.builders import a_job, at

CODE = "f00d" * 16
OTHER_CODE = "beef" * 16
LONG_AGO_S = 1_000_000.0


@asynccontextmanager
async def a_home(folder, **settings):
    environ = {"TRAINMASTER_HOME": str(folder / "home"), "TRAINMASTER_STORE": str(folder / "store")}
    async with opened(read_config({**environ, **settings})) as embedded:
        yield embedded


def over(job_id, code=CODE, **fields):
    fields = {"outcome": Outcome.FAILED, **fields}
    return replace(a_job(Phase.FINISHED), id=JobId(job_id), code=Code(sha256=code), **fields)


async def remember(embedded, job):
    """A finished job of this home, with its files."""
    await embedded.ports.database.add(job, [], None)
    embedded.store.put(layout.spec(job.id), msgspec.json.encode(job_file(job)))
    embedded.store.put(layout.record(job.id), msgspec.json.encode(job))
    if job.code.sha256 is not None:
        embedded.store.put(layout.code(job.code.sha256), b"code")


def in_store(embedded, prefix):
    return [entry.key for entry in embedded.store.list_keys(Key(prefix))]


async def removed(embedded, plan):
    return [(item.kind, item.name) async for item in embedded.house.carry_out(plan)]


def test_what_is_imported_while_it_is_pruned_stays(tmp_path):
    """A killed import is seen, and begun again before its files go."""

    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            with embedded.home.importing("left-abcde"):
                embedded.home.begin_import("left-abcde")
            embedded.store.put(layout.spec("left-abcde"), b"half")
            plan = await embedded.house.plan(Wish())
            assert [(item.kind, item.name) for item in plan.items] == [("leftover", "left-abcde")]
            with embedded.home.importing("left-abcde") as was_begun:
                assert was_begun
                assert await removed(embedded, plan) == []
                assert in_store(embedded, "jobs")
            embedded.home.end_import("left-abcde")  # as if it had been taken back
            assert await removed(embedded, plan) == []
            with embedded.home.importing("left-abcde"):
                embedded.home.begin_import("left-abcde")
            assert await removed(embedded, plan) == [("leftover", "left-abcde")]
            assert in_store(embedded, "jobs") == []

    asyncio.run(play())


@pytest.mark.parametrize("unreadable", [b"{not json", b'{"v": 9, "identity": "theirs-abcde"}'])
def test_while_a_spec_of_another_home_cannot_be_read_no_code_goes(tmp_path, unreadable):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            await remember(embedded, over("ours-abcde"))
            embedded.store.put(layout.spec("theirs-abcde"), unreadable)
            await embedded.house.delete([over("ours-abcde")])
            assert in_store(embedded, "code") == [layout.code(CODE)]
            plan = await embedded.house.plan(Wish())
            assert [item.kind for item in plan.items] == []
            embedded.store.delete_prefix(layout.job("theirs-abcde"))
            assert await removed(embedded, await embedded.house.plan(Wish())) == [], "the code is young"
            os.utime(tmp_path / "store" / layout.code(CODE), (LONG_AGO_S, LONG_AGO_S))
            embedded.store.put(layout.spec("theirs-abcde"), unreadable)
            plan = await embedded.house.plan(Wish())
            assert (plan.items, plan.kept) == (
                (),
                (("theirs-abcde", "its spec.json cannot be read; while it lies there no code goes"),),
            )
            embedded.store.delete_prefix(layout.job("theirs-abcde"))
            assert await removed(embedded, await embedded.house.plan(Wish())) == [("code", CODE)]

    asyncio.run(play())


def test_a_spec_with_more_in_it_than_we_know_still_says_which_code_it_needs(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            await remember(embedded, over("ours-abcde"))
            await remember(embedded, over("gone-abcde", OTHER_CODE))
            newer = msgspec.json.encode({"v": 2, "id": "theirs-abcde", "spec": {"quantum": True}, "code": {"sha256": CODE, "x": 1}})
            embedded.store.put(layout.spec("theirs-abcde"), newer)
            await embedded.house.delete([over("ours-abcde"), over("gone-abcde", OTHER_CODE)])
            assert in_store(embedded, "code") == [layout.code(CODE)]

    asyncio.run(play())


def test_code_of_a_study_that_waits_in_another_home_stays(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path / "a", TRAINMASTER_STORE=str(tmp_path / "store")) as theirs:
            waiting = [
                replace(a_job(), id=JobId(f"s1-{n}"), code=Code(sha256=CODE), study=StudyRef(id="s1", index=n, batch="s1-1"))
                for n in (1, 2)
            ]
            await theirs.studies.accept(waiting)
        async with a_home(tmp_path / "b", TRAINMASTER_STORE=str(tmp_path / "store")) as embedded:
            await remember(embedded, over("ours-abcde"))
            await embedded.house.delete([over("ours-abcde")])
            assert in_store(embedded, "code") == [layout.code(CODE)]

    asyncio.run(play())


HEAD = CheckpointRef(id="1-000001", taken_at=at(0), committed_at=at(0))
GOES_ON = Continues(job=JobId("ours-abcde"), checkpoint=HEAD)


def theirs_that_goes_on(**fields):
    return over("theirs-abcde", OTHER_CODE, continues=GOES_ON, **fields)


def test_a_job_whose_checkpoint_one_of_another_home_needs_stays(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            await remember(embedded, over("ours-abcde"))
            embedded.store.put(layout.spec("theirs-abcde"), msgspec.json.encode(job_file(theirs_that_goes_on())))
            with pytest.raises(Refused, match="theirs-abcde needs it"):
                await embedded.house.delete([over("ours-abcde")])
            plan = await embedded.house.plan(Wish(older_than_s=0.0))
            assert (plan.items, plan.kept) == ((), (("ours-abcde", "theirs-abcde needs it"),))
            with_own = msgspec.json.encode(theirs_that_goes_on(head=HEAD))
            embedded.store.put(layout.record("theirs-abcde"), with_own)
            assert await embedded.house.delete([over("ours-abcde")]) == ["ours-abcde"], "it has its own checkpoint by now"

    asyncio.run(play())


def test_a_job_of_another_home_whose_checkpoint_one_of_ours_needs_is_no_leftover(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            ours = over("ours-abcde", continues=Continues(job=JobId("theirs-abcde"), checkpoint=HEAD))
            await remember(embedded, ours)
            for job_id in ("theirs-abcde", "nobodys-abcde"):
                embedded.store.put(layout.spec(job_id), msgspec.json.encode(job_file(over(job_id))))
                os.utime(tmp_path / "store" / layout.spec(job_id), (LONG_AGO_S, LONG_AGO_S))
            plan = await embedded.house.plan(Wish(unknown=True))
            assert [(item.kind, item.name) for item in plan.items] == [("unknown", "nobodys-abcde")]

    asyncio.run(play())


def test_what_a_study_that_is_not_over_has_finished_stays(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            done, waits = (StudyRef(id="s1", index=n, batch="s1-1") for n in (2, 1))
            await remember(embedded, over("s1-2", study=done, outcome=Outcome.SUCCEEDED))
            await embedded.ports.database.add(replace(a_job(), id=JobId("s1-1"), study=waits), [], at(0))
            plan = await embedded.house.plan(Wish(older_than_s=0.0))
            assert (plan.items, plan.kept) == ((), (("s1-2", "s1-1 of its study has not finished"),))
            with pytest.raises(Refused, match="s1-1 of its study has not finished"):
                await embedded.house.delete([over("s1-2", study=done, outcome=Outcome.SUCCEEDED)])

    asyncio.run(play())


def test_a_job_that_succeeded_needs_no_other_any_more(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            went_on = over("young-abcde", continues=GOES_ON, outcome=Outcome.SUCCEEDED)
            await remember(embedded, over("ours-abcde"))
            await remember(embedded, went_on)
            assert await embedded.house.delete([over("ours-abcde")]) == ["ours-abcde"]

    asyncio.run(play())


class Counted:
    """Notes what is listed."""

    def __init__(self, inner):
        self._inner, self.listed = inner, []

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def list_keys(self, prefix):
        self.listed.append(prefix)
        return await self._inner.list_keys(prefix)


def test_one_job_is_deleted_without_a_listing_of_them_all(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            await remember(embedded, over("ours-abcde"))
            store = Counted(embedded.ports.store)
            await House(replace(embedded.ports, store=store), embedded.home).delete([over("ours-abcde")])
            assert (store.listed, in_store(embedded, "jobs")) == ([], [])

    asyncio.run(play())


class Away:
    """A store that does not answer."""

    async def list_keys(self, prefix):
        raise StoreUnavailable("the store does not answer")


class Later:
    """The same clock, some hours on."""

    def __init__(self, clock, hours):
        self._clock, self._by = clock, timedelta(hours=hours)

    def now(self):
        return self._clock.now() + self._by


def test_retention_that_failed_is_tried_again_the_same_day(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            wish, now = Wish(older_than_s=0.0), asyncio.Event()
            now.set()

            def house(hours, **ports):
                return House(replace(embedded.ports, clock=Later(embedded.ports.clock, hours), **ports), embedded.home)

            await house(0, store=Away()).keep(wish, now)
            assert not await house(0.5).is_due(wish), "not with every command"
            assert await house(1.5).is_due(wish)
            await remember(embedded, over("ours-abcde"))
            await house(1.5).keep(wish, now)
            assert await embedded.ports.database.load(JobId("ours-abcde")) is None
            assert not await house(20).is_due(wish)
            assert await house(26).is_due(wish)

    asyncio.run(play())


def test_a_file_with_two_names_takes_room_once(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            for folder in ("envs", "uv-cache"):
                (tmp_path / "home" / folder).mkdir()
            (tmp_path / "home" / "uv-cache" / "wheel").write_bytes(bytes(5000))
            os.link(tmp_path / "home" / "uv-cache" / "wheel", tmp_path / "home" / "envs" / "wheel")
            (tmp_path / "home" / "envs" / "own").write_bytes(bytes(300))
            sizes = embedded.home.sizes()
            assert sizes["envs"] + sizes["uv-cache"] == 5300

    asyncio.run(play())


def test_who_waits_for_a_submission_lets_everything_else_go_on(tmp_path):
    """The driver keeps house and drives jobs in one loop."""

    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            await remember(embedded, over("ours-abcde"))
            embedded.held.enter_context(embedded.home.submitting())
            asyncio.get_running_loop().call_later(0.2, embedded.held.close)  # by who goes on
            assert await embedded.house.delete([over("ours-abcde")]) == ["ours-abcde"]

    asyncio.run(play())


def test_who_submits_is_told_for_whom_it_waits(tmp_path):
    async def play() -> None:
        async with a_home(tmp_path) as embedded:
            told: list[str] = []
            with embedded.home.submitting(lambda: told.append("early")):
                pass
            alone = embedded.home.alone()
            alone.__enter__()

            def waits() -> None:
                told.append("waits")
                alone.__exit__(None, None, None)

            with embedded.home.submitting(waits):
                assert told == ["waits"]

    asyncio.run(play())
