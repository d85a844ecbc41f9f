"""What do we need of whoever has machines? It turns "these machines for this attempt" into machines and says what it holds.

Promises, checked by testing/conformance/provider.py:

1. `launch` with a name it already holds changes nothing: same name, same machine.
2. `inspect` says GONE only when it knows; no answer is UNKNOWN, never an exception.
3. `release` is done when `inspect` says GONE, not before. Releasing what is not there is fine.
4. `allocations` names everything it holds or has not forgotten, also what nobody asked for in this process's lifetime.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from trainmaster.core.facts import Sighting
from trainmaster.core.job import AllocationName, JobId, Placement
from trainmaster.core.schedule import Capacity


class Capability(StrEnum):
    """What a provider can do beyond the port's verbs."""

    #: somebody can always say whether a machine is gone
    CONFIRMS_GONE = "confirms_gone"
    #: the job can run in the folder it was submitted from
    IN_PLACE = "in_place"


class LaunchRequest(Struct, frozen=True, kw_only=True):
    """What a runner needs to begin; everything else it reads from the object store."""

    name: AllocationName
    job_id: JobId
    attempt: int
    placement: Placement
    store_url: str
    attempt_lease_s: float
    heartbeat_s: float
    #: seconds of running left of the job's limit
    run_s_left: float | None = None
    #: between SIGTERM and SIGKILL
    grace_s: float = 30.0
    nodes: int = 1
    #: a runner that has not won its claim by then goes
    start_s_max: float = 600.0
    #: the machine ends itself after this, whoever has forgotten it
    machine_s_max: float = 604_800.0
    #: nobody can confirm that the machine is gone: the runner ends the job before its lease does, and others count on that
    ends_with_lease: bool = False
    #: under which name the submitter's environment is kept; empty: the job's
    environment: str = ""

    @property
    def environment_name(self) -> str:
        """Under which name the submitter's environment is kept."""
        return self.environment or self.job_id


#: How many bytes of fetched inputs a machine keeps for later jobs, when nobody says otherwise.
INPUTS_BYTES_MAX = 50_000_000_000


class LaunchFile(Struct, frozen=True, kw_only=True):
    """launch.json in an allocation's folder: what a provider tells the runner that it starts there, and reads again itself."""

    request: LaunchRequest
    store_options: dict[str, str] = {}
    #: environment of the submission, kept on this machine only
    environ_file: str = ""
    #: a folder of this machine that all its jobs share: built environments, fetched inputs
    shared: str = ""
    #: how many bytes of fetched inputs are kept there
    inputs_bytes_max: int = INPUTS_BYTES_MAX
    #: the control group made for the job before its runner was started
    cgroup: str = ""


class Provider(Protocol):
    """Machines."""

    @property
    def name(self) -> str:
        """The word for it in a spec."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do beyond the verbs."""
        ...

    @property
    def features(self) -> frozenset[str]:
        """Which optional fields of a spec it can serve."""
        ...

    async def capacity(self) -> Capacity:
        """What it can hold at one time. Repeatable."""
        ...

    async def launch(self, request: LaunchRequest) -> None:
        """Start a runner for an attempt. Repeatable by name.

        NoCapacity, ProviderRejected: nothing was started. ProviderUnavailable: it may have been.
        """
        ...

    async def inspect(self, name: AllocationName) -> Sighting:
        """Whether the allocation exists. Never raises for trouble: that is UNKNOWN. Repeatable."""
        ...

    async def nudge(self, name: AllocationName) -> None:
        """Hint to the runner that an order waits in the store; may be lost. Repeatable; nothing for an unknown name."""
        ...

    async def release(self, name: AllocationName) -> None:
        """End everything that runs there and give the machines back. Repeatable; nothing for an unknown name."""
        ...

    async def allocations(self) -> list[AllocationName]:
        """Everything held or not yet forgotten, in order of name. ProviderUnavailable when nobody can say."""
        ...

    async def wait_change(self, name: AllocationName) -> None:
        """Return when the allocation may have changed; a hint that may come early or never. Cancellable."""
        ...
