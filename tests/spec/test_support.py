"""Is everything a provider cannot do refused, and nothing forgotten?"""

from __future__ import annotations

import pytest
from msgspec import inspect as shapes

from trainmaster.spec.job_spec import JobSpec
from trainmaster.spec.parse import spec_from_mapping
from trainmaster.spec.support import EVERYWHERE, FEATURES, NEEDS, unknown_provider, unsupported

NONE: frozenset[str] = frozenset()

ASKED = [
    ({"secrets": {"A": "vault://x"}}, ["secrets"]),
    ({"environment": {"python": "3.11"}}, ["environment.python"]),
    ({"environment": {"requirements": "r.txt"}}, ["environment.requirements"]),
    ({"environment": {"requirements": []}}, ["environment.requirements"]),
    ({"environment": {"conda": "c.yml"}}, ["environment.conda"]),
    ({"environment": {"apt": ["git"]}}, ["environment.apt"]),
    ({"environment": {"setup": ["true"]}}, ["environment.setup"]),
    ({"environment": {"index": "https://i", "requirements": []}}, ["environment.requirements", "environment.index"]),
    (
        {"environment": {"extra_indexes": ["https://i"], "requirements": []}},
        ["environment.requirements", "environment.extra_indexes"],
    ),
    ({"environment": {"wheels": "w", "requirements": []}}, ["environment.requirements", "environment.wheels"]),
    ({"environment": {"image": "a:1"}}, ["environment.image"]),
    ({"environment": {"docker": {"shm_size": "1g"}}}, ["environment.docker"]),
    ({"inputs": {"train": "s3://b"}}, ["inputs"]),
    ({"resources": {"disk": "1G"}}, ["resources.disk"]),
    ({"resources": {"gpus": "A100:1"}}, ["resources.gpus"]),
    ({"resources": {"machine_type": "big"}}, ["resources.machine_type"]),
    ({"resources": {"nodes": 2}}, ["resources.nodes"]),
    ({"resources": {"alternatives": [{"gpus": 1}]}}, ["resources.alternatives"]),
    ({"resources": {"image": "i"}}, ["resources.image"]),
    ({"resources": {"zone": "z"}}, ["resources.zone"]),
    ({"market": {"kind": "spot"}}, ["market.kind"]),
    ({"market": {"kind": "spot-with-fallback", "fallback_after": 0}}, ["market.kind", "market.fallback_after"]),
    ({"market": {"deadline": 0}}, ["market.deadline"]),
    ({"distribution": {"kind": "torchrun"}}, ["distribution.kind"]),
    ({"distribution": {"kind": "mpi", "processes_per_node": 2}}, ["distribution.kind", "distribution.processes_per_node"]),
    ({"limits": {"money": 0}}, ["limits.money"]),
    ({"pool": "team"}, ["pool"]),
    ({"metrics": {"tensorboard": "runs"}}, ["metrics.tensorboard"]),
    ({"stop_rules": [{"name": "a", "condition": "b"}]}, ["stop_rules"]),
    ({"profiler": {"kind": "torch"}}, ["profiler"]),
    ({"resources": {"gpus": 2, "cpus": 4, "memory": "1G"}}, []),
    ({"retry": {"failures": 3}, "limits": {"run": "1h"}, "tags": {"a": "b"}, "in_place": True}, []),
]


@pytest.mark.parametrize(("mapping", "paths"), ASKED)
def test_what_is_not_supported_is_named(mapping, paths):
    spec = spec_from_mapping({"command": "x", **mapping})
    assert unsupported(spec, NONE) == [(path, f"provider local does not support {path} yet") for path in paths]
    assert unsupported(spec, FEATURES) == []


def test_data_can_be_had_before_they_can_be_streamed():
    spec = spec_from_mapping({"command": "x", "inputs": {"a": {"uri": "s3://b", "mode": "fastfile"}}})
    assert unsupported(spec, frozenset({"inputs"})) == [("inputs", "provider local does not support inputs in mode fastfile yet")]
    assert unsupported(spec, FEATURES) == []


def test_a_feature_lifts_only_its_own_refusal():
    spec = spec_from_mapping({"command": "x", "inputs": {"a": "b"}, "market": {"kind": "spot"}, "provider": "cloud"})
    assert unsupported(spec, frozenset({"inputs"})) == [("market.kind", "provider cloud does not support market.kind yet")]


def test_every_row_of_the_table_is_asked_for_above():
    assert {path for _, paths in ASKED for path in paths} == {need.path for need in NEEDS}


def test_every_field_is_in_the_table_or_holds_everywhere():
    fields = set()
    for field in shapes.type_info(JobSpec).fields:
        inner = getattr(field.type, "fields", None)
        fields |= {f"{field.name}.{one.name}" for one in inner} if inner else {field.name}
    assert fields == {need.path for need in NEEDS} | EVERYWHERE


def test_an_unknown_provider_is_refused():
    spec = spec_from_mapping({"command": "x", "provider": "locl"})
    assert unknown_provider(spec, frozenset({"locl"})) == []
    known = frozenset({"local", "other"})
    assert unknown_provider(spec, known) == [("provider", 'found "locl", known here: local, other; did you mean `local`?')]
