"""What is done in an odd order still counts: a machine is given back while the store is away, a stop never undoes a closing."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from trainmaster.adapters.object_store import AsyncDoor, open_store
from trainmaster.adapters.providers.local.provider import LocalProvider
from trainmaster.adapters.system_clock import SystemClock
from trainmaster.control.observe import Ports
from trainmaster.control.reconciler import perform
from trainmaster.core.facts import Timing
from trainmaster.core.instructions import CloseAttempt, OrderStop, Release, Seal
from trainmaster.core.job import Phase, allocation_name
from trainmaster.core.messages import OrderFile, OrderKind
from trainmaster.errors import StoreUnavailable
from trainmaster.spec import layout
from trainmaster.testing.builders import a_job


def ports_on(tmp_path, store):
    return Ports(
        clock=SystemClock(),
        database=None,
        store=AsyncDoor(store),
        store_url=store.url,
        providers={"local": LocalProvider(tmp_path / "machines", tmp_path / "environments", None)},
        timing=Timing(),
        heartbeat_s=1.0,
        owner="test",
    )


def test_a_stop_that_arrives_after_the_closing_does_not_undo_it(tmp_path):
    """Its runner, should it still live, would go on to commit."""
    job = a_job(Phase.RUNNING)
    name = allocation_name(job.id, job.attempt)
    store = open_store(str(tmp_path / "store"))
    stop = OrderStop(name=name, job_id=job.id, attempt=1, sentence="enough", grace_s=5.0)
    close = CloseAttempt(name=name, job_id=job.id, attempt=1)
    asyncio.run(perform((stop, close, stop), job, ports_on(tmp_path, store)))
    assert msgspec.json.decode(store.get(layout.order(job.id, 1)), type=OrderFile).kind is OrderKind.CLOSE


def test_release_is_carried_out_though_close_failed_and_nothing_else_is(tmp_path):
    job = a_job(Phase.RUNNING)
    name = allocation_name(job.id, job.attempt)
    machine = tmp_path / "machines" / name
    machine.mkdir(parents=True)
    store = open_store(str(tmp_path / "store"))
    ports = ports_on(tmp_path, store)
    (tmp_path / "store").rename(tmp_path / "away")
    wanted = (CloseAttempt(name=name, job_id=job.id, attempt=1), Release(name=name, provider="local"), Seal(job_id=job.id))
    with pytest.raises(StoreUnavailable):
        asyncio.run(perform(wanted, job, ports))
    assert not machine.exists()
    (tmp_path / "away").rename(tmp_path / "store")
    assert store.get(f"jobs/{job.id}/record.json") is None
