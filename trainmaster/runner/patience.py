"""How does a runner wait for a store that does not answer? For as long as it may, and it says so."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from trainmaster.adapters import host
from trainmaster.errors import StoreFull, StoreRejected, StoreUnavailable

_T = TypeVar("_T")


def retrying(call: Callable[[], _T], *, for_s_max: float = math.inf, refused_s_max: float = 0.0) -> _T:
    """Until the store answers and has room, or time is up. A refusal is passed on; where it may be taken back, later."""
    pause_s, began_s = 0.2, host.elapsed_s()
    while True:
        try:
            return call()
        except (StoreUnavailable, StoreFull, StoreRejected) as error:
            if host.elapsed_s() - began_s >= (refused_s_max if isinstance(error, StoreRejected) else for_s_max):
                raise
            say(f"waiting for the store: {error.sentence}")
            threading.Event().wait(pause_s)
            pause_s = min(5.0, pause_s * 2)


def say(text: str) -> None:
    """One line in the runner's own log."""
    sys.stderr.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {text}\n")  # noqa: TID251
    sys.stderr.flush()
