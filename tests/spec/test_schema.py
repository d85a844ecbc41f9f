"""Does the committed schema say what the parser does, and are the generated files current?"""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from test_parse import FULL, VALID
from test_support import ASKED

from trainmaster.errors import InvalidSpec
from trainmaster.spec.parse import load_mapping_yaml, spec_from_mapping
from trainmaster.spec.schema import job_schema
from trainmaster.testing.generate import ROOT, field_comments, generated_files, main

SCHEMA = job_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", generated_files())
def test_generated_files_are_current(path):
    assert (ROOT / path).read_text(encoding="utf-8") == generated_files()[path], "run: make schema"


@pytest.mark.parametrize("mapping", [load_mapping_yaml(FULL, "job.yaml"), *({"command": "x", **mapping} for mapping, _ in ASKED)])
def test_examples_fit_the_schema(mapping):
    VALIDATOR.validate(mapping)
    spec_from_mapping(mapping)


@given(VALID)
def test_what_the_parser_takes_fits_the_schema(mapping):
    VALIDATOR.validate(mapping)
    spec_from_mapping(mapping)


@pytest.mark.parametrize(
    "mapping",
    [
        {"env": {"PORT": 8080, "DEBUG": True}},
        {"arguments": ["--epochs", 3]},
        {"environment": {"python": 3.11, "apt": ["git"]}},
        {"limits": {"run": "1h30m", "queue": 5, "grace": "45s"}},
        {"resources": {"memory": "16GiB", "disk": 5}},
    ],
)
def test_what_a_file_may_say_fits_the_schema(mapping):
    VALIDATOR.validate({"command": "x", **mapping})


@pytest.mark.parametrize(
    "mapping",
    [
        {"name": "a/b"},
        {"name": "a\n"},
        {"retries": 3},
        {"retry": {"failures": -1}},
        {"limits": {"run": "soon"}},
        {"resources": {"memory": "lots"}},
        {"market": {"kind": "spott"}},
        {"env": ["A"]},
        {"env": {"A": []}},
    ],
)
def test_what_the_parser_refuses_does_not_fit_the_schema(mapping):
    assert not VALIDATOR.is_valid({"command": "x", **mapping})
    with pytest.raises(InvalidSpec):
        spec_from_mapping({"command": "x", **mapping})


def test_every_field_is_explained():
    fields = field_comments((ROOT / "trainmaster/spec/job_spec.py").read_text(encoding="utf-8"))
    assert fields["Retry"]["failures"] == "how many failures are retried"
    sections = {"environment", "outputs", "checkpoints", "resources", "market", "distribution", "retry", "limits", "metrics"}
    silent = {f"{name}.{field}" for name, comments in fields.items() for field, comment in comments.items() if not comment}
    assert silent == {f"JobSpec.{section}" for section in sections | {"stop_rules", "profiler", "study"}}


def test_the_generator_writes_and_checks(tmp_path, capsys):
    assert main(["--check"], tmp_path) == 1
    assert "is stale" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    assert json.loads((tmp_path / "docs/reference/job.schema.json").read_text(encoding="utf-8")) == SCHEMA
    (tmp_path / "docs/reference/job-spec.md").write_text("old", encoding="utf-8")
    assert main(["--check"], tmp_path) == 1
