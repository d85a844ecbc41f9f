"""What is there at the end of an attacked world? Database, bucket and everything that was seen, as one value for the checkers.

Most checkers read what they read in a simulated world. From outside some things cannot be seen exactly, and are told so that
nobody is blamed wrongly: a script or a runner that did not say how it ended was alive until it was last seen; a closing counts
from when its request was sent. Records are looked at twenty times a second: what changed and changed back within that time is not
seen. Vacuous here: the part of `ledger_adds_up` about machines and `outcome_is_the_exit_code`, but for kind worlds;
`silence_restarts_nothing`, but for silent ones; `stops_have_their_grace`, for nobody sees signals from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
from blake3 import blake3

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.adapters.object_store import open_store
from trainmaster.core.facts import Timing
from trainmaster.core.job import JobRecord
from trainmaster.core.messages import Manifest
from trainmaster.core.story import StoryLine
from trainmaster.ports.database import Selection
from trainmaster.ports.object_store import BlockingStore
from trainmaster.spec import layout
from trainmaster.testing.chaos.chronicle import Chronicle, machine_events, read_journal, training_events
from trainmaster.testing.chaos.draw import ChaosJob, Mood
from trainmaster.testing.chaos.processes import ProcessWatch
from trainmaster.testing.chaos.scene import LEASE_S, PREFIX, Scene
from trainmaster.testing.chaos.store_witness import step_of_files
from trainmaster.testing.chaos.train import step_in
from trainmaster.testing.s3_server import S3Server
from trainmaster.testing.witness import Event, Marked, Promise, World

_JOBS_MAX = 100_000


async def gather(
    scene: Scene, server: S3Server, chronicle: Chronicle, watch: ProcessWatch, plans: Mapping[str, ChaosJob], promise: Promise
) -> World:
    """Everything a checker may look at."""
    records, stories = await _read_database(scene.home / "trainmaster.db")
    store = await asyncio.to_thread(_read_store, open_store(f"{server.url}/{PREFIX}", options=server.options))
    journal = read_journal(scene.journal, chronicle.zero_s)
    lives = list(watch.lifetimes.values())
    seen = [*chronicle.events, *training_events(journal, lives, chronicle.killed), *machine_events(lives)]
    destinies = {job_id: plans[job.spec.name].destiny for job_id, job in records.items()}
    ended_at_s = chronicle.now_s()
    return World(
        events=tuple(in_order([*seen, *damaged(store, chronicle.events, ended_at_s)])),
        records=records,
        stories=stories,
        store=store,
        destinies=destinies,
        promise=promise,
        ended_at_s=ended_at_s,
    )


def promise_of(mood: Mood, calm_at_s: float | None, settle_s_max: float) -> Promise:
    """What this world promises; it runs with the default limits of a machine."""
    return Promise(
        machine_s_max=Timing().machine_s_max,
        settle_s_max=settle_s_max,
        sight_s=LEASE_S,
        lag_s=10.0,
        calm_at_s=calm_at_s,
        is_kind=mood is Mood.KIND,
        only_silence=mood is not Mood.HARSH,
        clocks_agree=True,
        is_driven_to_the_end=True,
    )


def in_order(events: list[Event]) -> list[Event]:
    """By time; what happened at one moment stays as it was noted."""
    return sorted(events, key=lambda event: event.at_s)


def damaged(store: Mapping[str, bytes], events: list[Event], at_s: float) -> list[Event]:
    """Checkpoints that stand at the end and are no longer what was committed: told as marked, and torn."""
    marks = {(e.job_id, e.checkpoint): e for e in events if isinstance(e, Marked)}
    found: list[Event] = []
    for key in store:
        job_id, name = _job_and_checkpoint(key)
        if not name or not layout.is_commit(job_id, key) or layout.manifest(job_id, name) not in store:
            continue
        manifest = msgspec.json.decode(store[layout.manifest(job_id, name)], type=Manifest)
        keys = [layout.checkpoint_file(job_id, file.stored_in, file.path) for file in manifest.files]
        files: dict[str, tuple[str, int]] = {k: (blake3(store[k]).hexdigest(), step_in(store[k])) for k in keys if k in store}
        step, mark = step_of_files(job_id, manifest, files), marks.get((job_id, name))
        if mark is None or mark.step != step:
            attempt = layout.parse_checkpoint_id(name)[0]
            found.append(Marked(at_s, job_id, attempt, mark.runner if mark is not None else "nobody", name, -1))
    return found


def _job_and_checkpoint(key: str) -> tuple[str, str]:
    parts = key.split("/")
    return (parts[1], parts[3]) if len(parts) > 4 and parts[2] == "checkpoints" else ("", "")


async def _read_database(path: Path) -> tuple[dict[str, JobRecord], dict[str, list[StoryLine]]]:
    database = SqliteDatabase.open(path)
    try:
        jobs = await database.find(Selection(limit=_JOBS_MAX))
        return {job.id: job for job in jobs}, {job.id: await database.story(job.id) for job in jobs}
    finally:
        await database.close()


def _read_store(store: BlockingStore) -> dict[str, bytes]:
    """Every object, asked of the server itself."""
    keys = [entry.key for entry in store.list_keys(layout.Key("jobs"))]
    return {key: store.get(key) or b"" for key in keys}
