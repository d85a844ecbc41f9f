"""Two who keep house, or one who does while another works: who may remove what?"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from trainmaster.config import read_config
from trainmaster.core.house import Wish
from trainmaster.core.job import CheckpointRef, Code, Continues, JobId, Outcome, Phase, StudyRef
from trainmaster.core.messages import job_file
from trainmaster.embedded import opened
from trainmaster.errors import Refused
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
