"""The background driver: `python -m trainmaster.embedded`."""

import asyncio
import logging
import sys

from trainmaster.embedded import opened
from trainmaster.errors import TrainmasterError


async def _driver() -> None:
    async with opened() as embedded:
        await embedded.be_the_driver()


logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
try:
    asyncio.run(_driver())
except TrainmasterError as error:
    sys.exit(f"driver: {error.sentence}")
