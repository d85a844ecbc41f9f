"""How do we say it to this machine? Pure: requests to files and words, what was found to sightings."""

from __future__ import annotations

from msgspec import Struct

from trainmaster.adapters.process_folder import RUNNER_FEATURES, ProcessFile
from trainmaster.core.facts import Seen, Sighting

#: Optional fields of a spec this provider serves.
FEATURES: frozenset[str] = RUNNER_FEATURES | {"in_place"}


class FoundRunner(Struct, frozen=True, kw_only=True):
    """What was found of an allocation."""

    process: ProcessFile | None
    is_locked: bool
    #: processes of the job that outlived their runner
    leftovers: tuple[int, ...] = ()
    #: one letter of the runner's process state
    state: str = ""
    boot: str
    host: str
    #: the end of what a runner that did not end well said about itself
    last_words: str = ""


def sighting(found: FoundRunner) -> Sighting:
    """The runner holds a lock that the kernel ends with it; nothing else is asked, least of all a bare process number."""
    process = found.process
    if process is not None and process.host != found.host:
        return Sighting(seen=Seen.UNKNOWN, evidence=f"started on {process.host}; this is {found.host}", was_launched=True)
    if found.is_locked:
        stopped = ", stopped by a signal" if found.state in {"T", "t"} else ""
        who = f"runner process {process.pid}" if process is not None else "a runner"
        return Sighting(seen=Seen.PRESENT, evidence=f"{who} holds its lock{stopped}", was_launched=True)
    if found.leftovers:
        pids = ", ".join(map(str, found.leftovers))
        who = f"runner process {process.pid}" if process is not None else "its runner"
        evidence = f"{who} has ended, but processes {pids} of its job live"
        return Sighting(seen=Seen.PRESENT, evidence=evidence, was_launched=True, runner_has_ended=True)
    if process is None:
        return Sighting(seen=Seen.GONE, evidence="never launched here")
    why = "this machine was restarted" if process.boot != found.boot else f"runner process {process.pid} has ended"
    said = f"; it said: {found.last_words}" if found.last_words else ""
    return Sighting(seen=Seen.GONE, evidence=f"{why}{said}", was_launched=True)
