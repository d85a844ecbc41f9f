"""Does what people write become the job they meant, or an error they can act on?"""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.errors import InvalidSpec
from trainmaster.spec.job_spec import JobSpec, Limits, MetricPattern, Metrics, Resources, Retry
from trainmaster.spec.parse import (
    default_name,
    load_mapping_json,
    load_mapping_yaml,
    parse_json,
    parse_yaml,
    spec_from_mapping,
    with_overrides,
)
from trainmaster.spec.problems import Problem, as_error, shown


def answered(parse, *arguments) -> JobSpec | InvalidSpec:
    """What parsing says; any other exception fails the test."""
    try:
        return parse(*arguments)
    except InvalidSpec as error:
        return error


def refused(mapping: dict) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as caught:
        spec_from_mapping({"name": "a", "command": "x", **mapping})
    return caught.value


FULL = """
name: mnist
entry_point: train.py
arguments: [--epochs, 3, --fast, true]
hyperparameters: {lr: 1e-3, layers: [1, 2], opt: {a: 1, b: x}, amp: true, note: on, none: null}
env: {DEBUG: on, PORT: 8080, VERSION: 1.10, EMPTY: , NULLISH: null, ON: yes, HEX: 0x1F}
tags: {year: 2024, ok: true}
environment: {python: 3.10}
checkpoints: {interval: 1h30m, settle: 2s}
resources: {memory: 16GiB, gpus: 2}
retry: {failures: 3, backoff: 0.5}
limits: {run: 2d, grace: 45}
metrics: {patterns: [{name: loss, regex: 'loss=([0-9.]+)'}]}
"""


def test_a_full_job_from_yaml():
    spec = parse_yaml(FULL, "job.yaml")
    assert spec.arguments == ["--epochs", "3", "--fast", "true"]
    assert spec.hyperparameters == {
        "lr": 0.001,
        "layers": [1, 2],
        "opt": {"a": 1, "b": "x"},
        "amp": True,
        "note": "on",
        "none": None,
    }
    assert spec.env == {
        "DEBUG": "on",
        "PORT": "8080",
        "VERSION": "1.10",
        "EMPTY": "",
        "NULLISH": "null",
        "ON": "yes",
        "HEX": "0x1F",
    }
    assert spec.tags == {"year": "2024", "ok": "true"}
    assert spec.environment.python == "3.10"
    assert (spec.checkpoints.interval, spec.checkpoints.settle) == (5400.0, 2.0)
    assert spec.resources == Resources(memory=16 << 30, gpus=2)
    assert spec.retry == Retry(failures=3, backoff=0.5)
    assert spec.limits == Limits(run=172800.0, grace=45.0)
    assert spec.metrics == Metrics(patterns=[MetricPattern(name="loss", regex="loss=([0-9.]+)")])


def test_json_keeps_text_as_written_too():
    spec = parse_json('{"command": ["a", 1], "env": {"A": 1e3, "B": true, "C": "x"}, "limits": {"run": 9}}', "job.json")
    assert (spec.command, spec.env, spec.limits.run) == (["a", "1"], {"A": "1e3", "B": "true", "C": "x"}, 9.0)


def test_python_values_are_taken_and_not_changed():
    mapping = {"command": ("python", "x.py"), "limits": {"run": "1m"}, "resources": {"cpus": 2}}
    spec = spec_from_mapping(mapping)
    assert (spec.command, spec.limits.run, spec.resources.cpus, spec.name) == (["python", "x.py"], 60.0, 2.0, "x")
    assert mapping["limits"] == {"run": "1m"}


def test_subclasses_of_plain_values_become_plain():
    class Text(str):
        pass

    spec = spec_from_mapping({Text("command"): Text("x")})
    assert type(spec.command) is str


@pytest.mark.parametrize(
    ("mapping", "path", "words"),
    [
        ({"retry": {"failures": "three"}}, "retry.failures", 'found "three", wanted a whole number, 0 or more'),
        ({"retry": {"failures": -1}}, "retry.failures", "found -1, wanted a whole number, 0 or more"),
        ({"retry": {"failures": 1.5}}, "retry.failures", "found 1.5, wanted a whole number"),
        ({"retry": {"failures": True}}, "retry.failures", "found true, wanted a whole number"),
        ({"retry": 3}, "retry", "found 3, wanted a mapping with the fields failures, interruptions"),
        ({"retry": {"failure": 3}}, "retry.failure", "unknown field; did you mean `failures`?"),
        ({"retries": 3}, "retries", "did you mean `retry`?"),
        ({"zzz": 3}, "zzz", "unknown field"),
        ({"resources": {"cpus": 0}}, "resources.cpus", "found 0, wanted a number, more than 0"),
        ({"resources": {"nodes": 99999}}, "resources.nodes", "at most 10000"),
        ({"resources": {"gpus": [1]}}, "resources.gpus", "found a list, wanted a whole number"),
        ({"resources": {"gpus": "two"}}, "resources.gpus", "TYPE:COUNT"),
        ({"resources": {"gpus": "2"}}, "resources.gpus", "TYPE:COUNT"),
        ({"resources": {"gpus": -1}}, "resources.gpus", "found -1"),
        ({"resources": {"memory": "lots"}}, "resources.memory", 'found "lots", wanted a size'),
        ({"resources": {"memory": -1}}, "resources.memory", "wanted a size"),
        ({"resources": {"alternatives": [{"gpu": 1}]}}, "resources.alternatives[0].gpu", "did you mean `gpus`?"),
        ({"limits": {"run": "soon"}}, "limits.run", 'found "soon", wanted a duration'),
        ({"limits": {"grace": "2d"}}, "limits.grace", "wanted a duration up to a day"),
        ({"limits": {"run": math.nan}}, "limits.run", "finite"),
        ({"limits": {"run": []}}, "limits.run", "found a list, wanted a duration"),
        ({"market": {"kind": "spott"}}, "market.kind", "did you mean `spot`?"),
        ({"market": {"kind": None}}, "market.kind", "found nothing, wanted one of on-demand"),
        ({"in_place": "yes"}, "in_place", 'found "yes", wanted true or false'),
        ({"name": "a/b"}, "name", 'which contains "/"'),
        ({"name": "grün"}, "name", 'which contains "ü"'),
        ({"name": "x" * 300}, "name", "found 300 characters, wanted 1 to 63"),
        ({"name": ""}, "name", "found empty text"),
        ({"name": "-a"}, "name", "the first and the last a letter or digit"),
        ({"name": "a\n"}, "name", r"\n"),
        ({"name": None}, "name", "found nothing"),
        ({"command": None}, "command", "is missing, and entry_point too"),
        ({"entry_point": "x.py"}, "command", "exactly one of the two"),
        ({"command": "  \n"}, "command", "blank"),
        ({"command": []}, "command", "blank"),
        ({"command": [""]}, "command", "blank"),
        ({"command": [1]}, "command[0]", "found 1, wanted text"),
        ({"command": "x" * 200_000}, "command", "at most"),
        ({"arguments": ["x" * 200_000]}, "arguments", "at most"),
        ({"command": "a | tee b", "hyperparameters": {"lr": 1}}, "command", "cannot take the hyperparameters"),
        ({"command": "a # b", "arguments": ["x"]}, "command", "cannot take"),
        ({"source_dir": " "}, "source_dir", "blank"),
        ({"env": {"TM_X": "1"}}, "env.TM_X", "set by Trainmaster"),
        ({"env": {"SM_X": "1"}}, "env.SM_X", "set by Trainmaster"),
        ({"env": {"PET_X": "1"}}, "env.PET_X", "set by Trainmaster"),
        ({"env": {"AIP_X": "1"}}, "env.AIP_X", "set by Trainmaster"),
        ({"env": {"RANK": "1"}}, "env.RANK", "set by Trainmaster"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, "env.CUDA_VISIBLE_DEVICES", "set by Trainmaster"),
        ({"secrets": {"WORLD_SIZE": "1"}}, "secrets.WORLD_SIZE", "set by Trainmaster"),
        ({"secrets": {"A": "1"}, "env": {"A": "2"}}, "secrets.A", "given in env too"),
        ({"env": {"A": "x\0y"}}, "env.A", "NUL"),
        ({"env": {"A": "\udc80"}}, "env.A", "not UTF-8"),
        ({"env": {"A": 8080}}, "env.A", "found 8080, wanted text"),
        ({"env": {"1A": "x"}}, "env.1A", "the first not a digit"),
        ({"env": {"A=B": "x"}}, 'env["A=B"]', 'which contains "="'),
        ({"env": {"A\n": "x"}}, 'env["A\\n"]', "as a name"),
        ({"env": {"A": "x" * 200_000}}, "env.A", "at most"),
        ({"env": {f"A{n}": "x" * 90_000 for n in range(6)}}, "env", "in all"),
        ({"env": ["A=1"]}, "env", "found a list, wanted a mapping (each: text)"),
        ({"env": {1: "x"}}, "env", "found 1 as a name, wanted text"),
        ({"tags": {"": "x"}}, 'tags[""]', "as a name: found empty text"),
        ({"tags": {"a": "x" * 300}}, "tags.a", "found 300 characters, wanted text of 0 to 255"),
        ({"hyperparameters": {"sagemaker_program": "x"}}, "hyperparameters.sagemaker_program", "reserved"),
        ({"hyperparameters": {"a b": 1}}, 'hyperparameters["a b"]', "without spaces"),
        ({"hyperparameters": {"a=b": 1}}, 'hyperparameters["a=b"]', "without spaces"),
        ({"hyperparameters": {"-a": 1}}, "hyperparameters.-a", "not a dash"),
        ({"hyperparameters": {"a": [[1]]}}, "hyperparameters.a[0]", "found a list, wanted text or a number"),
        ({"hyperparameters": {"a": {"b": {}}}}, "hyperparameters.a.b", "found a mapping, wanted text"),
        ({"hyperparameters": {"a": 1 << 70}}, "hyperparameters.a", "64 bits"),
        ({"hyperparameters": {"a": math.inf}}, "hyperparameters.a", "found inf, wanted a finite number"),
        ({"hyperparameters": {"a": "x" * 60_000}}, "hyperparameters", "at most"),
        ({"hyperparameters": {"a": object()}}, "hyperparameters.a", "found a object, wanted text"),
        ({"hyperparameters": {"a": {1}}}, "hyperparameters.a", "found a set"),
        ({"inputs": {"../x": "s3://b"}}, 'inputs["../x"]', "as a name"),
        ({"inputs": {"x": {"url": "s3://b"}}}, "inputs.x.url", "did you mean `uri`?"),
        ({"inputs": {"x": {"mode": "file"}}}, "inputs.x.uri", "is missing; wanted text"),
        ({"inputs": {"x": " "}}, "inputs.x", "is blank"),
        ({"inputs": {"x": "ftp://a/b"}}, "inputs.x", "no kind of address known here"),
        ({"inputs": {"x": {"uri": "s3:///a"}}}, "inputs.x.uri", "no plain bucket name"),
        ({"inputs": {"a-b": "s3://b", "A.b": "s3://b"}}, 'inputs["A.b"]', "would be SM_CHANNEL_A_B like the channel a-b"),
        ({"inputs": {"x": 5}}, "inputs.x", "found 5, wanted text or a mapping with the fields uri"),
        ({"checkpoints": {"directory": "/tmp/x"}}, "checkpoints.directory", "not relative"),
        ({"checkpoints": {"directory": "a/../.."}}, "checkpoints.directory", "contains `..`"),
        ({"checkpoints": {"directory": "."}}, "checkpoints.directory", "the folder itself"),
        ({"outputs": {"keep": ["*.png", "/etc/*"]}}, "outputs.keep[1]", "not relative"),
        ({"outputs": {"keep": [""]}}, "outputs.keep[0]", "blank"),
        ({"metrics": {"patterns": [{"name": "a", "regex": "("}]}}, "metrics.patterns[0].regex", "no regular expression"),
        ({"metrics": {"patterns": [{"name": "a", "regex": "x{99999999999}"}]}}, "metrics.patterns[0].regex", "no regular"),
        ({"metrics": {"patterns": [{"name": "a", "regex": "[[a]"}]}}, "metrics.patterns[0].regex", "at least one group"),
        ({"metrics": {"patterns": [{"name": "a", "regex": "(?u)v=(.)"}]}}, "metrics.patterns[0].regex", "no regular"),
        ({"metrics": {"patterns": [{"name": "a", "regex": "^(a+)+"}]}}, "metrics.patterns[0].regex", "repeats a repetition"),
        ({"metrics": {"patterns": [{"name": "a", "regex": "(?:x*){2,}(b)"}]}}, "metrics.patterns[0].regex", "repeats a repetition"),
        ({"name": "last"}, "name", "means the newest job"),
        ({"metrics": {"patterns": [{"name": "a", "regex": "(a)=(.)"}]}}, "metrics.patterns[0].regex", "with 2 groups, wanted one"),
        ({"metrics": {"patterns": [{"name": "a"}]}}, "metrics.patterns[0].regex", "is missing"),
        ({"metrics": {"patterns": [3]}}, "metrics.patterns[0]", "found 3, wanted a mapping"),
        ({"priority": 5000}, "priority", "-1000 or more, at most 1000"),
    ],
)
def test_what_is_wrong_is_named(mapping, path, words):
    error = refused(mapping)
    assert error.path == path
    assert words in error.sentence
    assert "$" not in error.sentence.replace("$@", "")
    assert "Expected" not in error.sentence


def test_entry_points_stay_inside():
    for entry_point in ("/etc/x.py", "../x.py", "~/x.py", " "):
        with pytest.raises(InvalidSpec, match="entry_point"):
            spec_from_mapping({"entry_point": entry_point})


def test_an_unknown_field_lists_the_known_ones():
    assert refused({"retry": {"x": 1}}).hint == "retry may have: failures, interruptions, backoff, backoff_max."
    assert refused({"x": 1}).hint.startswith("A job may have: name, command")


def test_all_errors_come_at_once_and_not_too_many():
    error = refused({"retry": {"failures": "x"}, "limits": {"run": "x"}, "env": {"1": "x"}})
    assert [line.split(":")[0] for line in str(error).splitlines()] == ["limits.run", "env.1", "retry.failures"]
    assert str(refused({"env": {str(n): "x" for n in range(20)}})).splitlines()[-1] == "and 12 more"
    assert str(refused({"limits": {"run": "x"}, "pool": "p", "env": {"RANK": ""}})).splitlines()[1].startswith("env.RANK")


def test_a_problem_without_a_path_is_only_its_sentence():
    with pytest.raises(InvalidSpec, match=r"^found a list, wanted a mapping of field names$"):
        spec_from_mapping([])  # type: ignore[arg-type]
    assert str(as_error([Problem("", "one"), Problem("", "two")])) == "one\ntwo"


def test_deep_and_circular_values_are_refused():
    circle: dict = {}
    circle["a"] = circle
    assert "deep" in refused({"hyperparameters": circle}).sentence


def test_long_and_odd_values_are_shown_short():
    assert shown("x" * 100) == f'"{"x" * 60}… (100 characters)"'
    assert shown("a\x1b[0m\n") == r'"a\x1b[0m\n"'
    assert shown(10**100).endswith("(101 characters)")


@pytest.mark.parametrize(
    ("mapping", "name"),
    [
        ({"entry_point": "src/train.py"}, "train"),
        ({"entry_point": "my train!.sh"}, "my-train"),
        ({"command": "python -u src/train.py --x"}, "train"),
        ({"command": ["sh", "run.sh", 3]}, "run"),
        ({"command": "echo hi"}, "job"),
        ({"entry_point": "…"}, "job"),
        ({"command": "python " + "x" * 100 + ".py"}, "x" * 63),
        ({}, "job"),
    ],
)
def test_a_job_without_a_name_is_named_after_its_script(mapping, name):
    assert default_name(mapping) == name


def test_flags_are_laid_over_a_file():
    mapping = load_mapping_yaml("name: a\nenv: {A: 1, B: 2}\nretry: {failures: 1}\npool: p\n", "job.yaml")
    merged = with_overrides(
        mapping,
        {
            "name": "b",
            "env": {"B": "3"},
            "retry.failures": 5,
            "hyperparameters.model.lr": 0.1,
            "limits": {"run": "1h"},
            "command": "x",
        },
    )
    spec = spec_from_mapping(merged)
    assert (spec.name, spec.env, spec.retry.failures) == ("b", {"A": "1", "B": "3"}, 5)
    assert (spec.hyperparameters, spec.limits.run) == ({"model.lr": 0.1}, 3600.0)
    assert mapping["env"] == {"A": "1", "B": "2"}


def test_a_flag_cannot_hide_a_broken_section():
    assert with_overrides({"retry": 3}, {"retry.failures": 1}) == {"retry": 3}
    assert with_overrides({"retry": {"failures": 1}}, {"retry": 3}) == {"retry": 3}


def test_json_mapping_for_flags():
    assert load_mapping_json('{"name": "a", "priority": 3}', "job.json") == {"name": "a", "priority": 3}


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
PLAIN = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3))
FIELDS = st.sampled_from([*JobSpec.__struct_fields__, "x"])
SUBFIELDS = st.sampled_from(["failures", "run", "memory", "gpus", "patterns", "kind", "python", "keep", "A", "uri", "settle"])


@given(st.dictionaries(FIELDS, PLAIN | st.dictionaries(SUBFIELDS, PLAIN, max_size=3), max_size=4))
def test_any_mapping_is_a_spec_or_an_invalid_spec(mapping):
    found = answered(spec_from_mapping, mapping)
    if isinstance(found, JobSpec):
        assert parse_json(msgspec.json.encode(found).decode(), "again") == found
    else:
        assert found.sentence
        assert found.sentence != "does not have the shape of a job"


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
WORDS = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,10}", fullmatch=True).map(lambda word: f"x{word}x")
URIS = st.sampled_from(["data", "/a b/ü", "file:///x", "s3://bucket/a", "https://host/a.csv?b=c"])
VALID = st.fixed_dictionaries(
    {"name": WORDS, "command": TEXT.map(lambda text: f"run {text}") | st.lists(TEXT, max_size=3).map(lambda rest: ["run", *rest])},
    optional={
        "env": st.dictionaries(WORDS, TEXT, max_size=3),
        "tags": st.dictionaries(TEXT.filter(bool), TEXT, max_size=3),
        "in_place": st.booleans(),
        "priority": st.integers(-1000, 1000),
        "retry": st.fixed_dictionaries({}, optional={"failures": st.integers(0, 9), "backoff": st.floats(0, 1e6)}),
        "limits": st.fixed_dictionaries({"run": st.sampled_from(["90s", "1h30m", 5, 0.25]), "grace": st.floats(0, 86400)}),
        "resources": st.fixed_dictionaries(
            {"memory": st.sampled_from(["16GiB", 3, "1.5M"]), "gpus": st.sampled_from([0, 2, "A100:2"])}
        ),
        "inputs": st.dictionaries(
            st.sampled_from(["training", "a-b.c"]), URIS | st.fixed_dictionaries({"uri": URIS, "mode": st.just("fastfile")})
        ),
    },
)
HYPERPARAMETERS = st.dictionaries(
    WORDS, SCALARS.filter(lambda value: not isinstance(value, str)) | TEXT | st.lists(TEXT, max_size=2)
)


@given(VALID, HYPERPARAMETERS)
def test_a_spec_round_trips_through_json(mapping, hyperparameters):
    spec = spec_from_mapping(
        with_overrides({**mapping, "command": [str(mapping["command"])]}, {"hyperparameters": hyperparameters})
    )
    assert parse_json(msgspec.json.encode(spec).decode(), "again") == spec
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


@given(VALID)
def test_json_is_yaml(mapping):
    text = msgspec.json.encode(spec_from_mapping(mapping)).decode()
    if not any(ord(character) in range(0x7F, 0xA0) or character in "\ufeff\ufffe\uffff" for character in text):
        assert parse_yaml(text, "again") == parse_json(text, "again")


@given(
    st.text(max_size=200)
    | st.text("ab:-?[]{}&*!|>'\"%@#,<~ \t\n0.", max_size=60)
    | st.binary(max_size=60).map(lambda b: b.decode("latin1"))
)
def test_any_text_is_a_spec_or_an_invalid_spec(text):
    for parse in (parse_yaml, parse_json):
        found = answered(parse, text, "job")
        assert isinstance(found, JobSpec) or found.sentence
