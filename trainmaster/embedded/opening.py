"""How are database, store and machines of a home found and put together?"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.adapters.object_store import AsyncDoor, open_store
from trainmaster.adapters.system_clock import SystemClock
from trainmaster.config import Config, read_config
from trainmaster.control.observe import Ports
from trainmaster.core.facts import Timing
from trainmaster.core.schedule import Capacity
from trainmaster.embedded.session import Embedded
from trainmaster.errors import InvalidConfig
from trainmaster.ports.object_store import BlockingStore
from trainmaster.ports.provider import Provider

Wrap = Callable[[Provider], Provider]


@asynccontextmanager
async def opened(config: Config | None = None, wrap: Wrap | None = None) -> AsyncIterator[Embedded]:
    """Open database and store in the home folder. `wrap` lets tests and demos stand between us and the machines."""
    from trainmaster.adapters.providers.local.provider import LocalProvider

    config = config or read_config(os.environ)
    home = config.home_path
    with contextlib.suppress(OSError):  # whoever opens it next says what is wrong
        home.mkdir(parents=True, exist_ok=True, mode=0o700)  # specs and logs are their owner's
    database = SqliteDatabase.open(home / "trainmaster.db", busy_s_max=config.database_wait_s)
    try:
        store = _open_store(config)
        local: Provider = LocalProvider(
            home / "machines", home / "environments", _slots(config), inputs_bytes_max=config.inputs_bytes_max
        )
        providers = {"local": wrap(local) if wrap is not None else local, "simulated": _simulated(config)}
        timing = Timing(attempt_lease_s=config.attempt_lease_s, lease_margin_s=config.attempt_lease_s / 2, look_s=config.look_s)
        ports = Ports(
            clock=SystemClock(),
            database=database,
            store=AsyncDoor(store),
            store_url=store.url,
            providers=providers,
            timing=timing,
            heartbeat_s=config.heartbeat_s,
            owner=f"{os.uname().nodename}:{os.getpid()}:{secrets.token_hex(4)}",
        )
        embedded = Embedded(config, ports, store)
        with embedded.held:  # whatever happens: others wait for it
            yield embedded
    finally:
        await database.close()


def _simulated(config: Config) -> Provider:
    """A fleet of pretended machines; nothing of it is loaded before a job asks for it."""
    from trainmaster.adapters.late_provider import LateProvider

    folder = config.home_path / "simulated"

    def open_provider() -> Provider:
        from trainmaster.adapters.providers.simulated.client import FEATURES, LaptopFleet
        from trainmaster.adapters.providers.simulated.fate import FleetSettings
        from trainmaster.adapters.providers.simulated.provider import SimulatedProvider

        settings = FleetSettings(
            machines=config.simulated_machines,
            boot_s=config.simulated_boot_s,
            preempt_s=config.simulated_preempt_s,
            notice_s=config.simulated_notice_s,
        )
        environments, bytes_max = config.home_path / "environments", config.inputs_bytes_max
        return SimulatedProvider(LaptopFleet(folder, environments, settings, inputs_bytes_max=bytes_max), FEATURES)

    return LateProvider("simulated", open_provider, folder.exists)


def _open_store(config: Config) -> BlockingStore:
    """One home, one store: jobs of this home are driven by whoever comes next, and must be found where they were put.

    A store that was here once is not made anew: an unmounted disk would be taken for an empty one, and hidden by it.
    """
    if config.store.startswith("memory:"):
        raise InvalidConfig("store: memory:// is gone when this command ends", hint="use a folder or a bucket")
    # A home that keeps its own store may be moved.
    given = "" if config.store_url == str(config.home_path / "store") else config.store
    note = config.home_path / "store.url"
    known = note.read_text() if note.exists() else None
    if known is not None and known != given:
        said = known or "the folder `store` in it"
        hint = "set TRAINMASTER_HOME to another folder for another store"
        raise InvalidConfig(f"store: {config.home} keeps its jobs in {said}", hint=hint)
    store = open_store(config.store_url, create=known is None)
    if known is None:
        fresh = note.with_name(f"store.url.{secrets.token_hex(4)}")
        fresh.write_text(given)
        fresh.replace(note)
    return store


def _slots(config: Config) -> Capacity | None:
    if config.cpus is None and config.memory is None and config.gpus is None:
        return None
    from trainmaster.adapters import host

    return Capacity(
        cpus=config.cpus if config.cpus is not None else host.cpu_count(),
        memory=config.memory if config.memory is not None else host.memory_bytes(),
        gpus=tuple(range(config.gpus)) if config.gpus is not None else host.gpu_indexes(),
    )
