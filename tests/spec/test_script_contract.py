"""Does a script written for SageMaker, torchrun or Vertex AI find what it looks for?"""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.spec.job_spec import JobSpec
from trainmaster.spec.parse import spec_from_mapping
from trainmaster.spec.script_contract import (
    HYPERPARAMETER_FILE,
    ScriptContext,
    command_line,
    command_takes_words,
    config_files,
    is_owned,
    merged_environment,
    script_environment,
    user_arguments,
)

HYPERPARAMETERS = {"epochs": 3, "lr": 0.1, "learning-rate": 1.5, "flag": "abc", "sub": {"b": 2, "a": "x"}, "n": True, "none": None}


def a_context(**changes) -> ScriptContext:
    known = {"job_id": "j7", "job_name": "mnist", "attempt": 2, "base_dir": "/tm", "metrics_file": "/tm/metrics"}
    return ScriptContext(**{**known, **changes})


def a_spec(**fields) -> JobSpec:
    return spec_from_mapping({"entry_point": "train.py", **fields})


# The two columns of the tables in the contract notes, written down once more by hand.
V2 = """SM_CHANNELS SM_CURRENT_HOST SM_CURRENT_INSTANCE_GROUP SM_CURRENT_INSTANCE_GROUP_HOSTS SM_CURRENT_INSTANCE_TYPE
SM_DISTRIBUTION_INSTANCE_GROUPS SM_FRAMEWORK_MODULE SM_FRAMEWORK_PARAMS SM_HOSTS SM_HPS SM_INPUT_CONFIG_DIR SM_INPUT_DATA_CONFIG
SM_INPUT_DIR SM_INSTANCE_GROUPS SM_INSTANCE_GROUPS_DICT SM_IS_HETERO SM_LOG_LEVEL SM_MODEL_DIR SM_MODULE_DIR SM_MODULE_NAME
SM_NETWORK_INTERFACE_NAME SM_NUM_CPUS SM_NUM_GPUS SM_NUM_NEURONS SM_OUTPUT_DATA_DIR SM_OUTPUT_DIR SM_OUTPUT_INTERMEDIATE_DIR
SM_RESOURCE_CONFIG SM_TRAINING_ENV SM_USER_ARGS SM_USER_ENTRY_POINT"""
V3 = """SM_INPUT_DATA_DIR SM_OUTPUT_FAILURE SM_SOURCE_DIR SM_ENTRY_SCRIPT SM_DISTRIBUTED_DRIVER_DIR SM_DISTRIBUTED_CONFIG
SM_HOST_COUNT SM_CURRENT_HOST_RANK SM_MASTER_ADDR SM_MASTER_PORT"""


def test_both_dialects_of_sagemaker_are_complete():
    found = script_environment(a_spec(), a_context())
    assert {name for name in found if name.startswith("SM_")} == {*V2.split(), *V3.split()}
    assert (found["TRAINING_JOB_NAME"], found["SAGEMAKER_BASE_DIR"]) == ("mnist", "/tm")


def test_sagemaker_values():
    spec = a_spec(
        hyperparameters=HYPERPARAMETERS, inputs={"val-set": {"uri": "s3://b", "mode": "fastfile", "distribution": "sharded"}}
    )
    found = script_environment(spec, a_context(channels=("val-set", "training"), cpus=8, gpus=2))
    expected = {
        "SM_MODEL_DIR": "/tm/model",
        "SM_OUTPUT_DATA_DIR": "/tm/output/data",
        "SM_CHANNELS": '["training","val-set"]',
        "SM_CHANNEL_TRAINING": "/tm/input/data/training",
        "SM_CHANNEL_VAL-SET": "/tm/input/data/val-set",
        "SM_CHANNEL_VAL_SET": "/tm/input/data/val-set",
        "SM_HOSTS": '["localhost"]',
        "SM_CURRENT_HOST": "localhost",
        "SM_NUM_GPUS": "2",
        "SM_NUM_CPUS": "8",
        "SM_IS_HETERO": "false",
        "SM_HP_EPOCHS": "3",
        "SM_HP_FLAG": "abc",
        "SM_HP_LEARNING-RATE": "1.5",
        "SM_HP_LEARNING_RATE": "1.5",
        "SM_HP_SUB": '{"a":"x","b":2}',
        "SM_HP_N": "true",
        "SM_HP_NONE": "",
        "SM_MODULE_NAME": "train",
        "SM_USER_ENTRY_POINT": "train.py",
        "SM_FRAMEWORK_PARAMS": "{}",
    }
    assert {name: found[name] for name in expected} == expected
    assert json.loads(found["SM_HPS"]) == HYPERPARAMETERS
    assert json.loads(found["SM_USER_ARGS"]) == user_arguments(HYPERPARAMETERS)
    training = json.loads(found["SM_TRAINING_ENV"])
    assert training["hyperparameters"] == HYPERPARAMETERS
    assert training["is_master"] is True
    assert json.loads(found["SM_INPUT_DATA_CONFIG"]) == {
        "training": {"RecordWrapperType": "None", "S3DistributionType": "FullyReplicated", "TrainingInputMode": "File"},
        "val-set": {"RecordWrapperType": "None", "S3DistributionType": "ShardedByS3Key", "TrainingInputMode": "FastFile"},
    }


def test_a_name_spelt_with_an_underscore_keeps_its_value():
    found = script_environment(a_spec(hyperparameters={"a_b": 1, "a-b": 2}), a_context())
    assert (found["SM_HP_A_B"], found["SM_HP_A-B"]) == ("1", "2")


def test_our_own_variables():
    found = script_environment(a_spec(), a_context())
    assert {name: value for name, value in found.items() if name.startswith("TM_")} == {
        "TM_HOME": "/tm",
        "TM_JOB_ID": "j7",
        "TM_JOB_NAME": "mnist",
        "TM_ATTEMPT": "2",
        "TM_NODE": "0",
        "TM_NODES": "1",
        "TM_CODE_DIR": "/tm/code",
        "TM_INPUT_DIR": "/tm/input/data",
        "TM_CHECKPOINT_DIR": "/tm/checkpoints",
        "TM_MODEL_DIR": "/tm/model",
        "TM_OUTPUT_DIR": "/tm/output",
        "TM_FAILURE_FILE": "/tm/output/failure",
        "TM_TENSORBOARD_DIR": "/tm/output/tensorboard/attempt-2",
        "TM_HP_FILE": f"/tm/{HYPERPARAMETER_FILE}",
        "TM_METRICS_FILE": "/tm/metrics",
        "TM_RESUME": "0",
    }


def test_resuming_is_said():
    found = script_environment(a_spec(), a_context(resume_step=0))
    assert (found["TM_RESUME"], found["TM_RESUME_STEP"], "TM_RESUME_CHECKPOINT" in found) == ("1", "0", False)
    found = script_environment(a_spec(), a_context(resume_checkpoint="1-000003"))
    assert (found["TM_RESUME"], found["TM_RESUME_CHECKPOINT"], "TM_RESUME_STEP" in found) == ("1", "1-000003", False)


def test_the_seed_is_said_where_there_is_one():
    assert script_environment(a_spec(), a_context(seed=0))["TM_SEED"] == "0"
    assert "TM_SEED" not in script_environment(a_spec(), a_context())


def test_other_families():
    found = script_environment(a_spec(), a_context(checkpoint_dir="/c", code_dir="/src", master_port=1234))
    expected = {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1234",
        "NODES": "1",
        "PET_NNODES": "1",
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "localhost",
        "PET_MASTER_PORT": "1234",
        "AIP_MODEL_DIR": "/tm/model/",
        "AIP_CHECKPOINT_DIR": "/c/",
        "AIP_TENSORBOARD_LOG_DIR": "/tm/output/tensorboard/attempt-2/",
        "MLFLOW_RUN_NAME": "mnist",
        "PYTHONUNBUFFERED": "1",
        "TM_CHECKPOINT_DIR": "/c",
        "SM_MODULE_DIR": "/src",
    }
    assert {name: found[name] for name in expected} == expected


def test_jobs_on_one_machine_do_not_share_a_port_but_nodes_of_one_attempt_do():
    ports = {script_environment(a_spec(), a_context(job_id=f"j{n}"))["MASTER_PORT"] for n in range(20)}
    assert len(ports) == 20
    assert all(20_000 <= int(port) < 30_000 for port in ports)
    nodes = [script_environment(a_spec(), a_context(hosts=("a", "b"), node=node)) for node in (0, 1)]
    assert nodes[0]["MASTER_PORT"] == nodes[1]["MASTER_PORT"] == nodes[1]["PET_MASTER_PORT"] == nodes[0]["SM_MASTER_PORT"]


def test_several_machines():
    spec = a_spec(resources={"nodes": 2})
    found = script_environment(spec, a_context(hosts=("algo-1", "algo-2"), node=1))
    expected = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "NODES": "2",
        "PET_NODE_RANK": "1",
        "SM_CURRENT_HOST": "algo-2",
        "MASTER_ADDR": "algo-1",
    }
    assert {name: found[name] for name in expected} == expected
    launched = script_environment(a_spec(distribution={"kind": "torchrun"}), a_context(hosts=("a", "b")))
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & launched.keys()


def test_a_lone_process_is_not_told_that_it_is_one_of_several():
    launched = script_environment(a_spec(), a_context())
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & launched.keys()


def test_everything_we_set_is_ours_alone_but_one_default():
    found = script_environment(
        a_spec(hyperparameters=HYPERPARAMETERS), a_context(resume_step=1, resume_checkpoint="c", channels=("a",))
    )
    assert {name for name in found if not is_owned(name)} == {"PYTHONUNBUFFERED"}
    spec = a_spec(env={"PYTHONUNBUFFERED": ""})
    assert merged_environment({}, spec.env, script_environment(spec, a_context()))["PYTHONUNBUFFERED"] == ""


def test_ours_wins_over_the_users_over_the_machines():
    merged = merged_environment({"A": "1", "B": "1", "C": "1"}, {"B": "2", "C": "2"}, {"C": "3"})
    assert merged == {"A": "1", "B": "2", "C": "3"}


def test_config_files():
    spec = a_spec(hyperparameters=HYPERPARAMETERS)
    files = {path: json.loads(content) for path, content in config_files(spec, a_context(channels=("training",))).items()}
    assert files == {
        HYPERPARAMETER_FILE: HYPERPARAMETERS,
        "input/config/hyperparameters.json": {
            "epochs": "3",
            "lr": "0.1",
            "learning-rate": "1.5",
            "flag": '"abc"',
            "sub": '{"a":"x","b":2}',
            "n": "true",
            "none": "null",
        },
        "input/config/inputdataconfig.json": {
            "training": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
        },
        "input/config/resourceconfig.json": {
            "current_host": "localhost",
            "current_instance_type": "local",
            "current_group_name": "homogeneousCluster",
            "hosts": ["localhost"],
            "instance_groups": [{"instance_group_name": "homogeneousCluster", "instance_type": "local", "hosts": ["localhost"]}],
            "network_interface_name": "lo",
        },
        "input/config/checkpointconfig.json": {"LocalPath": "/tm/checkpoints"},
    }


def test_hyperparameters_as_words():
    assert user_arguments({"lr": 0.1, "e": 3, "b": True, "c": {"z": 1, "a": "x"}, "l": [1, "a"], "skip": None, "s": ""}) == [
        *("-b", "True"),
        *("-c", "a=x,z=1"),
        *("-e", "3"),
        *("-l", "[1, 'a']"),
        *("--lr", "0.1"),
        *("-s", ""),
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"entry_point": "train.py", "arguments": ["x"], "hyperparameters": {"lr": 1}}, ["py", "train.py", "--lr", "1", "x"]),
        ({"entry_point": "-c.py"}, ["py", "./-c.py"]),
        ({"entry_point": "a/run.sh"}, ["/bin/sh", "a/run.sh"]),
        ({"entry_point": "bin/train"}, ["./bin/train"]),
        ({"command": ["a", "b|c"], "hyperparameters": {"x": "1 2"}}, ["a", "b|c", "-x", "1 2"]),
        ({"command": "python train.py --lr=0.1 'a b'", "arguments": ["c d"]}, ["python", "train.py", "--lr=0.1", "a b", "c d"]),
        ({"command": "python $X"}, ["/bin/sh", "-c", "python $X", "sh"]),
        ({"command": "A=1 python x"}, ["/bin/sh", "-c", "A=1 python x", "sh"]),
        ({"command": "exit 3"}, ["/bin/sh", "-c", "exit 3", "sh"]),
        ({"command": "echo 'open"}, ["/bin/sh", "-c", "echo 'open", "sh"]),
        ({"command": "''"}, [""]),
        ({"command": "a && b\n", "hyperparameters": {"x": "1 2"}}, ["/bin/sh", "-c", "a && b -x '1 2'"]),
        ({"command": 'a "$@" | b', "arguments": ["c d"]}, ["/bin/sh", "-c", 'a "$@" | b', "sh", "c d"]),
    ],
)
def test_command_lines(fields, words):
    assert command_line(spec_from_mapping(fields), "py") == words


def test_a_spec_nobody_checked_has_no_command():
    assert command_line(JobSpec(name="a", arguments=["x"]), "py") == ["x"]


@pytest.mark.parametrize(
    ("command", "takes"),
    [
        ("python train.py", True),
        ("cd a && python train.py", True),
        ("a || b", True),
        ("a | tee b\npython train.py", True),
        ("python train.py --data ${DATA}", True),
        ("python train.py --data $(pwd)", True),
        ("python train.py > log", True),
        ('python train.py "$@" | tee log', True),
        ("python train.py | tee log", False),
        ("python train.py # comment", False),
        ("python train.py &", False),
        ("python train.py;", False),
        ("(python train.py)", False),
        ("{ python train.py; }", False),
        ("for i in 1 2; do python train.py; done", False),
        ("if true; then a; fi", False),
        ("cat <<E\nx\nE", False),
    ],
)
def test_which_commands_take_words(command, takes):
    assert command_takes_words(command) is takes


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=10), max_size=4))
def test_words_reach_a_shell_command_unharmed(words):
    for command in ("true && printf '%s\\0' x", "printf '%s\\0' x \"$@\""):
        line = command_line(JobSpec(name="a", command=command, arguments=words), "py")
        assert subprocess.run(line, capture_output=True, check=True).stdout.decode().split("\0")[1:-1] == words
