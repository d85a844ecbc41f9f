"""How does the runner keep its attempt lease, and hear what the control plane wants? One object written, one read, at each beat."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from trainmaster.core.facts import Heartbeat, StopSeen
from trainmaster.core.messages import OrderFile, OrderKind
from trainmaster.core.supervise import FoundClosed, LeaseRenewed, RunEvent, StopWanted
from trainmaster.errors import StoreError
from trainmaster.ports.object_store import BlockingStore
from trainmaster.ports.provider import LaunchRequest
from trainmaster.spec import layout


class Heart:
    """Beats in a thread of its own."""

    def __init__(
        self,
        request: LaunchRequest,
        store: BlockingStore,
        now: Callable[[], datetime],
        describe: Callable[[datetime, datetime], Heartbeat],
        post: Callable[[RunEvent], None],
    ) -> None:
        self._request = request
        self._store = store
        self._now = now
        self._describe = describe
        self._post = post
        self._beat_now = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def beat_now(self) -> None:
        """Something changed, or an order may wait."""
        self._beat_now.set()

    def finish(self) -> None:
        """Beat no more."""
        self._over = True
        self._beat_now.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over:
            self._beat()
            self._beat_now.wait(self._request.heartbeat_s)
            self._beat_now.clear()

    def _beat(self) -> None:
        # The lease counts from before the write: whoever reads it later must never believe in more than we do.
        at = self._now()
        until = at + timedelta(seconds=self._request.attempt_lease_s)
        job_id, attempt = self._request.job_id, self._request.attempt
        try:
            order = self._store.get(layout.order(job_id, attempt))
            if order is not None and self._obey(msgspec.json.decode(order, type=OrderFile)):
                return
            self._store.put(layout.heartbeat(job_id, attempt), msgspec.json.encode(self._describe(at, until)))
        except StoreError:
            return  # no renewal; the state machine notices when the lease has lapsed
        self._post(LeaseRenewed(until))

    def _obey(self, order: OrderFile) -> bool:
        """Pass the order on; True when the attempt is closed and its lease must not be renewed."""
        if order.kind is OrderKind.CLOSE:
            self._post(FoundClosed())
            return True
        self._post(StopWanted(why=StopSeen.ORDER, grace_s=order.grace_s))
        return False
