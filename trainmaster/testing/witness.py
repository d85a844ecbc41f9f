"""What was seen to happen in a world? True events in true order, noted where they happen; the checkers read nothing else.

A simulated world notes them as they happen. A world of real processes notes what it can see from outside. None of it comes from the
code under test, except the records it committed, which are what is judged.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from trainmaster.core.job import JobRecord
from trainmaster.core.story import StoryLine


class Submitted(Struct, frozen=True, tag=True):
    """A user was told that the job is accepted."""

    at_s: float
    job_id: str


class Recorded(Struct, frozen=True, tag=True):
    """A record was committed."""

    at_s: float
    job: JobRecord


class MachineMade(Struct, frozen=True, tag=True):
    """A machine exists; one name may be made again after it went."""

    at_s: float
    name: str
    serial: int


class MachineEnded(Struct, frozen=True, tag=True):
    """A machine is gone."""

    at_s: float
    name: str
    serial: int
    why: str


class Claimed(Struct, frozen=True, tag=True):
    """A claim came into being; no runner: it was closed."""

    at_s: float
    job_id: str
    attempt: int
    runner: str


class Closed(Struct, frozen=True, tag=True):
    """An attempt was told to end; nothing it does after this counts."""

    at_s: float
    job_id: str
    attempt: int


class TrainingBegan(Struct, frozen=True, tag=True):
    """A script was started."""

    at_s: float
    job_id: str
    attempt: int
    runner: str
    #: checkpoint it goes on from; empty: none
    resumed: str
    #: the step the script found in its folder; 0: none
    step: int


class TrainingEnded(Struct, frozen=True, tag=True):
    """A script runs no more."""

    at_s: float
    job_id: str
    attempt: int
    runner: str
    #: exit code of a script that ended by itself; None: it was ended
    code: int | None


class Told(Struct, frozen=True, tag=True):
    """A runner learnt that its script is to end: by an order, or by the machine that goes away."""

    at_s: float
    job_id: str
    attempt: int
    runner: str
    #: order, terminated
    why: str
    #: how long the script has, as the runner was told
    grace_s: float


class Signalled(Struct, frozen=True, tag=True):
    """A script that runs got a signal."""

    at_s: float
    job_id: str
    attempt: int
    runner: str
    signal: str


class Marked(Struct, frozen=True, tag=True):
    """A commit marker became visible."""

    at_s: float
    job_id: str
    attempt: int
    runner: str
    checkpoint: str
    #: the step its files hold; -1: they do not belong together, or some are missing
    step: int


class Unmarked(Struct, frozen=True, tag=True):
    """A commit marker was removed."""

    at_s: float
    job_id: str
    checkpoint: str


class Reported(Struct, frozen=True, tag=True):
    """An exit record became visible."""

    at_s: float
    job_id: str
    attempt: int
    code: int | None
    #: the script had been told to end
    was_told: bool


class Beat(Struct, frozen=True, tag=True):
    """A runner's heartbeat became visible."""

    at_s: float
    job_id: str
    attempt: int
    #: the end of its lease, by the runner's clock
    until_s: float = 0.0
    #: when it was written, by the same clock
    said_s: float = 0.0


class Flushed(Struct, frozen=True, tag=True):
    """A runner was told that a piece of the log is stored."""

    at_s: float
    key: str
    value: bytes


class Trouble(Struct, frozen=True, tag=True):
    """The world was unkind."""

    at_s: float
    kind: str
    detail: str = ""


Event = (
    Submitted
    | Recorded
    | MachineMade
    | MachineEnded
    | Claimed
    | Closed
    | TrainingBegan
    | TrainingEnded
    | Told
    | Signalled
    | Marked
    | Unmarked
    | Reported
    | Beat
    | Flushed
    | Trouble
)


class Destiny(Struct, frozen=True):
    """What a job's script does when nobody disturbs it."""

    #: exit code of a script that is left alone; None: it never ends by itself
    code: int | None
    #: a user asked for its end, sooner or later
    is_stopped: bool = False


class Promise(Struct, frozen=True, kw_only=True):
    """How long things may take in this world, and how unkind it was."""

    #: the longest a machine may live, whoever forgot it
    machine_s_max: float
    #: with everybody well again: until machines that nobody holds are gone
    settle_s_max: float
    #: how old what a control plane acts on may be
    sight_s: float = 90.0
    #: how often the control plane looks: what an observer may lag behind
    lag_s: float
    #: how long a runner may take to do what its own clock asks for
    act_s: float = 30.0
    #: how long a runner that nobody can ask after must have been silent before it is given up
    silence_s: float = 0.0
    #: when the faults stopped; None: they never did
    calm_at_s: float | None
    #: nothing ever went wrong
    is_kind: bool
    #: nothing but silence ever went wrong: delays, lost messages, partitions
    only_silence: bool
    #: all clocks agreed
    clocks_agree: bool
    #: somebody was there to finish the work
    is_driven_to_the_end: bool
    #: whoever says that a machine is gone knows
    confirms_gone: bool = True
    #: a runner ends its script when its lease ends
    ends_with_lease: bool = False


class World(Struct, frozen=True, kw_only=True):
    """Everything a checker may look at."""

    events: tuple[Event, ...]
    #: the newest record and the story of each job in the database
    records: Mapping[str, JobRecord]
    stories: Mapping[str, list[StoryLine]]
    #: the object store at the end
    store: Mapping[str, bytes]
    destinies: Mapping[str, Destiny]
    promise: Promise
    ended_at_s: float
