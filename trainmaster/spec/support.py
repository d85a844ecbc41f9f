"""Which fields of a job can a provider not do yet? What it cannot do is refused at submission, never ignored.

A provider names the features it has; the table says which field needs which feature. Fields that no row mentions are done by
Trainmaster itself and hold everywhere; a test makes sure that each field is either here or in EVERYWHERE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .job_spec import Input, JobSpec
from .problems import nearest, quoted


class FeatureNeed(NamedTuple):
    """A field that needs a feature, when the predicate says it was asked for."""

    path: str
    feature: str
    is_asked: Callable[[JobSpec], bool]
    #: what to call it, where the path says too much
    words: str = ""


def _asks_for_fastfile(spec: JobSpec) -> bool:
    return any(isinstance(given, Input) and given.mode == "fastfile" for given in spec.inputs.values())


NEEDS: tuple[FeatureNeed, ...] = (
    FeatureNeed("secrets", "secrets", lambda spec: bool(spec.secrets)),
    FeatureNeed("environment.python", "environment.python", lambda spec: spec.environment.python is not None),
    FeatureNeed("environment.requirements", "environment.requirements", lambda spec: spec.environment.requirements is not None),
    FeatureNeed("environment.conda", "environment.conda", lambda spec: spec.environment.conda is not None),
    FeatureNeed("environment.apt", "environment.apt", lambda spec: bool(spec.environment.apt)),
    FeatureNeed("environment.setup", "environment.setup", lambda spec: bool(spec.environment.setup)),
    FeatureNeed("environment.index", "environment.index", lambda spec: spec.environment.index is not None),
    FeatureNeed("environment.extra_indexes", "environment.index", lambda spec: bool(spec.environment.extra_indexes)),
    FeatureNeed("environment.wheels", "environment.wheels", lambda spec: spec.environment.wheels is not None),
    FeatureNeed("environment.image", "environment.image", lambda spec: spec.environment.image is not None),
    FeatureNeed("environment.docker", "environment.docker", lambda spec: bool(spec.environment.docker)),
    FeatureNeed("inputs", "inputs", lambda spec: bool(spec.inputs)),
    FeatureNeed("inputs", "inputs.fastfile", _asks_for_fastfile, "inputs in mode fastfile"),
    FeatureNeed("resources.disk", "resources.disk", lambda spec: spec.resources.disk is not None),
    FeatureNeed("resources.gpus", "resources.gpus.type", lambda spec: isinstance(spec.resources.gpus, str)),
    FeatureNeed("resources.machine_type", "resources.machine_type", lambda spec: spec.resources.machine_type is not None),
    FeatureNeed("resources.nodes", "resources.nodes", lambda spec: spec.resources.nodes > 1),
    FeatureNeed("resources.alternatives", "resources.alternatives", lambda spec: bool(spec.resources.alternatives)),
    FeatureNeed("resources.image", "resources.image", lambda spec: spec.resources.image is not None),
    FeatureNeed("resources.zone", "resources.zone", lambda spec: spec.resources.zone is not None),
    FeatureNeed("market.kind", "market.spot", lambda spec: spec.market.kind == "spot"),
    FeatureNeed("market.kind", "market.spot-with-fallback", lambda spec: spec.market.kind == "spot-with-fallback"),
    FeatureNeed("market.fallback_after", "market.spot-with-fallback", lambda spec: spec.market.fallback_after is not None),
    FeatureNeed("market.deadline", "market.deadline", lambda spec: spec.market.deadline is not None),
    FeatureNeed("distribution.kind", "distribution.torchrun", lambda spec: spec.distribution.kind == "torchrun"),
    FeatureNeed("distribution.kind", "distribution.mpi", lambda spec: spec.distribution.kind == "mpi"),
    FeatureNeed(
        "distribution.processes_per_node",
        "distribution.processes_per_node",
        lambda spec: spec.distribution.processes_per_node is not None,
    ),
    FeatureNeed("limits.money", "limits.money", lambda spec: spec.limits.money is not None),
    FeatureNeed("pool", "pools", lambda spec: spec.pool != "default"),
    FeatureNeed("metrics.tensorboard", "metrics.tensorboard", lambda spec: spec.metrics.tensorboard is not None),
    FeatureNeed("stop_rules", "stop_rules", lambda spec: bool(spec.stop_rules)),
    FeatureNeed("profiler", "profiler", lambda spec: spec.profiler is not None),
)

#: Every feature there is.
FEATURES = frozenset(need.feature for need in NEEDS)

#: Fields that hold with every provider.
EVERYWHERE = frozenset(
    {
        "name",
        "command",
        "entry_point",
        "arguments",
        "source_dir",
        "in_place",
        "hyperparameters",
        "env",
        "outputs.keep",
        "checkpoints.directory",
        "checkpoints.interval",
        "checkpoints.keep",
        "checkpoints.settle",
        "resources.cpus",
        "resources.memory",
        "retry.failures",
        "retry.interruptions",
        "retry.backoff",
        "retry.backoff_max",
        "limits.queue",
        "limits.wait",
        "limits.run",
        "limits.grace",
        "priority",
        "provider",
        "tags",
        "metrics.patterns",
        "seed",
        "study",
    }
)


def unsupported(spec: JobSpec, supported: frozenset[str]) -> list[tuple[str, str]]:
    """Field paths the spec's provider cannot do yet, each with a sentence; `supported` are its features."""
    return [
        (need.path, f"provider {spec.provider} does not support {need.words or need.path} yet")
        for need in NEEDS
        if need.feature not in supported and need.is_asked(spec)
    ]


def unknown_provider(spec: JobSpec, known: frozenset[str]) -> list[tuple[str, str]]:
    """The provider field, with a sentence, when nobody here goes by that name."""
    if spec.provider in known:
        return []
    names = sorted(known)
    return [("provider", f"found {quoted(spec.provider)}, known here: {', '.join(names)}{nearest(spec.provider, names)}")]
