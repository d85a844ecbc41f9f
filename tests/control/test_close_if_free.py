"""A runner that claims at the last moment is welcome: who gives up the start closes the claim first, and only if it is free."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from control.test_provider_away import Well, _ports

from trainmaster.control.reconciler import perform
from trainmaster.core.instructions import CloseAttempt
from trainmaster.core.job import JobId, Phase
from trainmaster.core.messages import ClaimFile
from trainmaster.spec import layout
from trainmaster.testing.builders import a_job, at
from trainmaster.testing.sim_database import Tables


@pytest.mark.parametrize("is_claimed", [True, False])
def test_only_what_is_free_is_closed(is_claimed):
    async def play() -> None:
        ports = _ports(Tables(), local=Well())
        job = a_job(Phase.STARTING)
        if is_claimed:
            await ports.store.put(layout.claim(job.id, 1), msgspec.json.encode(ClaimFile(runner="r", at=at(1))))
        await perform([CloseAttempt(name="j7-a1", job_id=JobId("j7"), attempt=1, if_free=True)], job, ports)
        claim = msgspec.json.decode(await ports.store.get(layout.claim(job.id, 1)), type=ClaimFile)
        order = await ports.store.get(layout.order(job.id, 1))
        assert (claim.runner, order is None) == (("r", True) if is_claimed else ("", False))

    asyncio.run(play())
