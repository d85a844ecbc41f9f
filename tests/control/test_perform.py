"""A machine is given back also while the store is away."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.adapters.object_store import AsyncDoor, open_store
from trainmaster.adapters.providers.local.provider import LocalProvider
from trainmaster.adapters.system_clock import SystemClock
from trainmaster.control.observe import Ports
from trainmaster.control.reconciler import perform
from trainmaster.core.facts import Timing
from trainmaster.core.instructions import CloseAttempt, Release, Seal
from trainmaster.core.job import Phase, allocation_name
from trainmaster.errors import StoreUnavailable
from trainmaster.testing.builders import a_job


def test_release_is_carried_out_though_close_failed_and_nothing_else_is(tmp_path):
    job = a_job(Phase.RUNNING)
    name = allocation_name(job.id, job.attempt)
    machine = tmp_path / "machines" / name
    machine.mkdir(parents=True)
    store = open_store(str(tmp_path / "store"))
    ports = Ports(
        clock=SystemClock(),
        database=None,
        store=AsyncDoor(store),
        store_url=store.url,
        providers={"local": LocalProvider(tmp_path / "machines", tmp_path / "environments", None)},
        timing=Timing(),
        heartbeat_s=1.0,
        owner="test",
    )
    (tmp_path / "store").rename(tmp_path / "away")
    wanted = (CloseAttempt(name=name, job_id=job.id, attempt=1), Release(name=name, provider="local"), Seal(job_id=job.id))
    with pytest.raises(StoreUnavailable):
        asyncio.run(perform(wanted, job, ports))
    assert not machine.exists()
    (tmp_path / "away").rename(tmp_path / "store")
    assert store.get(f"jobs/{job.id}/record.json") is None
