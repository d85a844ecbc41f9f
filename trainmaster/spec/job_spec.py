"""What may a job say? One frozen value, the same from YAML, JSON, Python and flags.

Durations are numbers of seconds here; text such as ``90s``, ``15m``, ``2h``, ``1d`` is turned into them by parse.py. Sizes are
bytes here; ``16GiB``, ``500MB`` in text. Each field's meaning is in its comment, which the reference page is made from.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

# Each description is what an error says was wanted; the JSON Schema and the reference page show it too. `$(?!\n)` is the end
# of the text in Python and in JavaScript alike: a bare `$` would let a final newline through.
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$(?!\n)",
        description="1 to 63 of the characters A-Z a-z 0-9 . _ -, the first and the last a letter or digit",
    ),
]
EnvName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)",
        description="1 to 256 of the characters A-Z a-z 0-9 _, the first not a digit",
    ),
]
TagName = Annotated[str, Meta(min_length=1, max_length=63)]
TagValue = Annotated[str, Meta(max_length=255)]
Seconds = Annotated[
    float,
    Meta(ge=0, le=10 * 365 * 86400, description="a duration up to ten years: seconds, or text such as 90s, 15m, 2h, 1d, 1h30m"),
]
SettleSeconds = Annotated[
    float, Meta(ge=0.05, le=3600, description="a duration from 0.05 s to 1 h: seconds, or text such as 2s or 1m")
]
GraceSeconds = Annotated[float, Meta(ge=0, le=86400, description="a duration up to a day: seconds, or text such as 90s, 15m, 2h")]
Bytes = Annotated[int, Meta(ge=0, le=1 << 60, description="a size: bytes, or text such as 500MB, 16GiB, 8G (G is GiB)")]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Scalar = str | int | float | bool | None
HyperparameterValue = Scalar | list[Scalar] | dict[str, Scalar]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Every part of a spec is frozen, written by name, and refuses fields it does not know."""


class Environment(_Part, frozen=True):
    """What the code needs around it."""

    #: Python version, such as ``"3.11"``; it must be installed on the machine
    python: str | None = None
    #: file in the source folder (``requirements.txt``, ``pyproject.toml``, ``uv.lock``, ``pylock.toml``), or a list of requirements
    requirements: str | list[str] | None = None
    #: conda environment file in the source folder
    conda: str | None = None
    #: Debian packages
    apt: list[str] = []
    #: shell commands run in the code folder before each attempt's script
    setup: list[str] = []
    #: package index instead of PyPI; ``${NAME}`` is filled in from the submitter's environment and never kept
    index: str | None = None
    #: package indexes asked before ``index``; ``${NAME}`` as above
    extra_indexes: list[str] = []
    #: folder of wheels, relative to the source folder or absolute; without an index, the only place packages come from
    wheels: str | None = None
    #: container image
    image: str | None = None
    #: docker options: shm size, capabilities, devices
    docker: dict[str, str | int | bool | list[str]] = {}


class Input(_Part, frozen=True):
    """One input channel."""

    #: where the data is: a folder or file relative to the job file, or ``s3://``, ``gs://``, ``az://``, ``https://``, ``file://``
    uri: str
    #: ``file``: there before the start; ``fastfile``: streamed
    mode: Literal["file", "fastfile"] = "file"
    #: each node gets everything, or its share
    distribution: Literal["replicated", "sharded"] = "replicated"


class Outputs(_Part, frozen=True):
    """What to keep beside ``model/`` and ``output/``."""

    #: patterns of files in the working folder to keep, such as ``*.png`` or ``runs/**``
    keep: list[str] = []


class Checkpoints(_Part, frozen=True):
    """How the checkpoint folder is committed."""

    #: the folder the script writes to, relative to the working folder; default: ``$TM_CHECKPOINT_DIR``
    directory: str | None = None
    #: shortest time between two commits
    interval: Seconds = 0.0
    #: how many commits are kept
    keep: Annotated[int, Meta(ge=1, le=10_000)] = 3
    #: how long the folder must lie still before it is taken
    settle: SettleSeconds = 1.0


class Resources(_Part, frozen=True):
    """What the job needs of a machine."""

    #: CPU cores
    cpus: Annotated[float, Meta(gt=0, le=100_000)] = 1.0
    #: memory
    memory: Bytes | None = None
    #: scratch disk
    disk: Bytes | None = None
    #: number of GPUs, or ``TYPE:COUNT``; default: one where the machine has any
    gpus: Count | str | None = None
    #: a machine type by name
    machine_type: str | None = None
    #: number of machines
    nodes: Annotated[int, Meta(ge=1, le=10_000)] = 1
    #: ordered alternatives, each overriding the fields it names
    alternatives: list[dict[str, str | int | float]] = []
    #: machine image
    image: str | None = None
    #: zone
    zone: str | None = None


class Market(_Part, frozen=True):
    """Spot or on-demand."""

    #: ``spot`` may be interrupted; ``spot-with-fallback`` goes on-demand after some interruptions
    kind: Literal["on-demand", "spot", "spot-with-fallback"] = "on-demand"
    #: interruptions after which to go on-demand
    fallback_after: Count | None = None
    #: when the job must be done
    deadline: Seconds | None = None


class Distribution(_Part, frozen=True):
    """How several processes are started."""

    #: ``none`` starts one process per machine
    kind: Literal["none", "torchrun", "mpi"] = "none"
    #: processes on each machine; default: one per GPU
    processes_per_node: Annotated[int, Meta(ge=1, le=1024)] | None = None


class Retry(_Part, frozen=True):
    """How often to try again. Interruptions and failures have separate budgets."""

    #: how many failures are retried
    failures: Count = 0
    #: how many interruptions (lost machine, killed runner, reboot) are retried
    interruptions: Count = 10
    #: first pause before a retry after a failure; doubles each time
    backoff: Seconds = 1.0
    #: longest pause before a retry
    backoff_max: Seconds = 300.0


class Limits(_Part, frozen=True):
    """When to give up."""

    #: longest time in the queue, each time
    queue: Seconds | None = None
    #: longest total time waiting, all attempts together
    wait: Seconds | None = None
    #: longest total time running, all attempts together
    run: Seconds | None = None
    #: most money
    money: Annotated[float, Meta(ge=0)] | None = None
    #: time between SIGTERM and SIGKILL
    grace: GraceSeconds = 30.0


class MetricPattern(_Part, frozen=True):
    """One metric found in the log."""

    #: metric name
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    #: regular expression with one group that matches a number, or with groups named after metrics
    regex: Annotated[str, Meta(min_length=1, max_length=1000)]


class Metrics(_Part, frozen=True):
    """Where metrics come from."""

    #: patterns on the log
    patterns: list[MetricPattern] = []
    #: TensorBoard folder
    tensorboard: str | None = None


class StopRule(_Part, frozen=True):
    """When to stop early."""

    #: name of the rule
    name: str
    #: when it holds, the job is stopped
    condition: str


class Profiler(_Part, frozen=True):
    """Profiling."""

    #: which profiler
    kind: str
    #: its options
    options: dict[str, str | int | float | bool] = {}


class Study(_Part, frozen=True):
    """Try the job with every combination of some parameters: ``trainmaster study``."""

    #: hyperparameter → the values to try
    grid: dict[str, list[HyperparameterValue]]
    #: how many of its jobs may run at one time; default: as many as fit
    max_parallel: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class JobSpec(_Part, frozen=True):
    """What a user asks for; it never changes."""

    #: name of the job; default: the script's name
    name: Name
    #: what to run, as one line for the shell or a list of words; or ``entry_point``
    command: str | list[str] | None = None
    #: a script (``.py``, ``.sh``) to run, relative to ``source_dir``
    entry_point: str | None = None
    #: words after the script
    arguments: list[str] = []
    #: folder with the code, relative to the job file
    source_dir: str | None = None
    #: run in the source folder itself instead of a snapshot
    in_place: bool = False
    #: reach the script as ``--name value``, as ``SM_HP_*`` and as a JSON file
    hyperparameters: dict[str, HyperparameterValue] = {}
    #: environment variables, kept as the text that was written: ``on`` stays ``on``
    env: dict[EnvName, str] = {}
    #: secrets by reference
    secrets: dict[EnvName, str] = {}
    environment: Environment = field(default_factory=Environment)
    #: channel name → where its data is
    inputs: dict[str, str | Input] = {}
    outputs: Outputs = field(default_factory=Outputs)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    resources: Resources = field(default_factory=Resources)
    market: Market = field(default_factory=Market)
    distribution: Distribution = field(default_factory=Distribution)
    retry: Retry = field(default_factory=Retry)
    limits: Limits = field(default_factory=Limits)
    #: which pool to queue in
    pool: str = "default"
    #: higher goes first
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    #: where to run
    provider: str = "local"
    #: names to find the job by
    tags: dict[TagName, TagValue] = {}
    metrics: Metrics = field(default_factory=Metrics)
    stop_rules: list[StopRule] = []
    profiler: Profiler | None = None
    #: what the script finds in ``TM_SEED``; default: by chance, and kept in the record
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    study: Study | None = None
