"""What does a control plane need in a test? Ports with a database, a store in memory and providers by name."""

from __future__ import annotations

from trainmaster.adapters.object_store import AsyncDoor
from trainmaster.control.observe import Ports
from trainmaster.ports.clock import Clock
from trainmaster.ports.database import Database
from trainmaster.ports.provider import Provider
from trainmaster.testing.builders import TIMING
from trainmaster.testing.sim_store import Objects


def a_control_plane(clock: Clock, database: Database, **providers: Provider) -> Ports:
    """Everything the control plane may touch, and nobody else beside it."""
    return Ports(
        clock=clock,
        database=database,
        store=AsyncDoor(Objects()),
        store_url=Objects.url,
        providers=providers,
        timing=TIMING,
        heartbeat_s=1,
        owner="me",
    )
