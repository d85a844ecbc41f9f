"""Does virtual time pass as real time would, in an order that only the seed decides?"""

from __future__ import annotations

import asyncio
import random

import pytest

from trainmaster.testing.virtual_loop import Deadlock, run_virtual


def test_sleeping_costs_nothing_and_ends_in_order():
    async def main(loop):
        async def nap(seconds):
            await asyncio.sleep(seconds)
            return loop.time()

        return await asyncio.gather(nap(3600), nap(1), nap(86400 * 365))

    assert run_virtual(main, random.Random(1)) == [3600.0, 1.0, 86400.0 * 365]


def test_the_order_of_what_is_ready_follows_the_seed():
    async def main(_loop):
        order = []

        async def note(name):
            await asyncio.sleep(1)
            order.append(name)

        await asyncio.gather(*(note(number) for number in range(8)))
        return order

    orders = {seed: run_virtual(main, random.Random(seed)) for seed in range(5)}
    assert orders == {seed: run_virtual(main, random.Random(seed)) for seed in range(5)}
    assert len({tuple(order) for order in orders.values()}) > 1


def test_timeouts_work():
    async def main(loop):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        return loop.time()

    assert run_virtual(main, random.Random(1)) == pytest.approx(10)


def test_waiting_for_nothing_is_an_error_instead_of_a_hang():
    async def main(_loop):
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(main, random.Random(1))
