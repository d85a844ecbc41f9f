"""What does a training script see? Its command line, its environment variables and its configuration files.

Nothing has to be imported by the script. Beside our own ``TM_*`` it finds the variables other services set, so that a script
written for one of them runs unchanged: both dialects of SageMaker's ``SM_*``, the launcher's ``MASTER_*`` and ``PET_*``, Vertex
AI's ``AIP_*``.

Hyperparameters become words as SageMaker's toolkit makes them: sorted by name, ``--name value``, one letter ``-n value``, a mapping
``k=v,k=v``, booleans ``True`` and ``False``, a list as Python prints it. One thing differs: null leaves the option out, so that the
script's own default holds (the toolkit passes an empty word, which ``type=int`` cannot read).
"""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from .job_spec import HyperparameterValue, Input, JobSpec

#: What SageMaker calls the one group of equal machines.
GROUP = "homogeneousCluster"

_OWNED_PREFIXES = ("TM_", "SM_", "PET_", "AIP_")
_OWNED_NAMES = frozenset(
    {
        "SAGEMAKER_BASE_DIR",
        "TRAINING_JOB_NAME",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODES",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "MLFLOW_RUN_NAME",
        # Set by the runner from the GPUs the job was given.
        "CUDA_VISIBLE_DEVICES",
    }
)
#: Words only a shell knows; there is no program to run directly.
_SHELL_WORDS = re.compile(
    r"!|\.|:|\[\[|alias|bg|break|case|cd|command|continue|do|done|elif|else|esac|eval|exec|exit|export|fg|fi|for|function|getopts"
    r"|hash|if|in|jobs|let|local|read|readonly|return|select|set|shift|source|then|time|times|trap|type|ulimit|umask|unalias|unset"
    r"|until|wait|while"
)


class ScriptContext(Struct, frozen=True, kw_only=True):
    """What is known about one node of one attempt just before the script starts."""

    job_id: str
    job_name: str
    #: counted from 1
    attempt: int
    #: this machine's number, counted from 0
    node: int = 0
    #: one name per machine; SageMaker's toolkit waits until each of them resolves
    hosts: tuple[str, ...] = ("localhost",)
    #: TM_HOME, the ``/opt/ml`` of this job; absolute, without a final slash
    base_dir: str
    #: where the code lies and the script starts, when that is not ``<base_dir>/code``
    code_dir: str = ""
    #: where checkpoints are written, when that is not ``<base_dir>/checkpoints``
    checkpoint_dir: str = ""
    #: the file or pipe the helper writes metrics to
    metrics_file: str
    #: names of the input channels, each a folder in ``<base_dir>/input/data``
    channels: tuple[str, ...] = ()
    cpus: int = 1
    gpus: int = 0
    machine_type: str = "local"
    network_interface: str = "lo"
    #: free on the first machine; default: derived from job and attempt, the same on each of its machines
    master_port: int | None = None
    #: step and name of the checkpoint that was restored, as far as known
    resume_step: int | None = None
    resume_checkpoint: str | None = None
    #: what the script may begin its random numbers with
    seed: int | None = None


def is_owned(name: str) -> bool:
    """Whether Trainmaster sets this variable, so that nobody else may."""
    return name.startswith(_OWNED_PREFIXES) or name in _OWNED_NAMES


def merged_environment(base: Mapping[str, str], spec_env: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """What the script's process gets: ours over the user's over the machine's."""
    return {**base, **spec_env, **ours}


def script_environment(spec: JobSpec, context: ScriptContext) -> dict[str, str]:
    """Every variable Trainmaster sets for the script."""
    environment = {
        **_sagemaker_environment(spec, context),
        **_launcher_environment(spec, context),
        **_trainmaster_environment(context),
        "AIP_MODEL_DIR": f"{context.base_dir}/model/",
        "AIP_CHECKPOINT_DIR": f"{_checkpoint_dir(context)}/",
        "AIP_TENSORBOARD_LOG_DIR": f"{_tensorboard_dir(context)}/",
        "MLFLOW_RUN_NAME": context.job_name,
    }
    # A default, not a promise: without it a killed script loses its last lines, but whoever wants buffering may have it.
    if "PYTHONUNBUFFERED" not in spec.env:
        environment["PYTHONUNBUFFERED"] = "1"
    return environment


def _trainmaster_environment(context: ScriptContext) -> dict[str, str]:
    base = context.base_dir
    is_resumed = context.resume_step is not None or context.resume_checkpoint is not None
    environment = {
        "TM_HOME": base,
        "TM_JOB_ID": context.job_id,
        "TM_JOB_NAME": context.job_name,
        "TM_ATTEMPT": str(context.attempt),
        "TM_NODE": str(context.node),
        "TM_NODES": str(len(context.hosts)),
        "TM_CODE_DIR": _code_dir(context),
        "TM_INPUT_DIR": f"{base}/input/data",
        "TM_CHECKPOINT_DIR": _checkpoint_dir(context),
        "TM_MODEL_DIR": f"{base}/model",
        "TM_OUTPUT_DIR": f"{base}/output",
        "TM_FAILURE_FILE": f"{base}/output/failure",
        "TM_TENSORBOARD_DIR": _tensorboard_dir(context),
        "TM_HP_FILE": f"{base}/{HYPERPARAMETER_FILE}",
        "TM_METRICS_FILE": context.metrics_file,
        "TM_RESUME": "1" if is_resumed else "0",
    }
    if context.seed is not None:
        environment["TM_SEED"] = str(context.seed)
    if context.resume_step is not None:
        environment["TM_RESUME_STEP"] = str(context.resume_step)
    if context.resume_checkpoint is not None:
        environment["TM_RESUME_CHECKPOINT"] = context.resume_checkpoint
    return environment


def _launcher_environment(spec: JobSpec, context: ScriptContext) -> dict[str, str]:
    master, port = context.hosts[0], str(_master_port(context))
    environment = {
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        "NODES": str(len(context.hosts)),
        "PET_NNODES": str(len(context.hosts)),
        "PET_NODE_RANK": str(context.node),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": port,
    }
    # One process on each of several machines: it is its own rank. A launcher numbers its processes itself, and a lone process must
    # not be told that it is one of several: libraries that find RANK or LOCAL_RANK set up process groups nobody asked for.
    if spec.distribution.kind == "none" and len(context.hosts) > 1:
        environment |= {"RANK": str(context.node), "WORLD_SIZE": str(len(context.hosts)), "LOCAL_RANK": "0"}
    return environment


def _sagemaker_environment(spec: JobSpec, context: ScriptContext) -> dict[str, str]:
    """The union of what the toolkit of SDK v2 and the drivers of SDK v3 set."""
    base = context.base_dir
    training = _training_environment(spec, context)
    values: dict[str, object] = {
        **{f"CHANNEL_{name.upper()}": path for name, path in _channel_dirs(context).items()},
        **{f"HP_{name.upper()}": value for name, value in sorted(spec.hyperparameters.items())},
        "CHANNELS": sorted(context.channels),
        "CURRENT_HOST": training["current_host"],
        "CURRENT_HOST_RANK": context.node,
        "CURRENT_INSTANCE_GROUP": GROUP,
        "CURRENT_INSTANCE_GROUP_HOSTS": list(context.hosts),
        "CURRENT_INSTANCE_TYPE": context.machine_type,
        "DISTRIBUTED_CONFIG": {},
        "DISTRIBUTED_DRIVER_DIR": f"{base}/input/data/sm_drivers/distributed_drivers",
        "DISTRIBUTION_INSTANCE_GROUPS": [],
        "ENTRY_SCRIPT": spec.entry_point,
        "FRAMEWORK_MODULE": None,
        "FRAMEWORK_PARAMS": {},
        "HOSTS": list(context.hosts),
        "HOST_COUNT": len(context.hosts),
        "HPS": spec.hyperparameters,
        "INPUT_CONFIG_DIR": f"{base}/input/config",
        "INPUT_DATA_CONFIG": training["input_data_config"],
        "INPUT_DATA_DIR": f"{base}/input/data",
        "INPUT_DIR": f"{base}/input",
        "INSTANCE_GROUPS": [GROUP],
        "INSTANCE_GROUPS_DICT": {GROUP: _instance_group(context)},
        "IS_HETERO": False,
        "LOG_LEVEL": 20,
        "MASTER_ADDR": context.hosts[0],
        "MASTER_PORT": _master_port(context),
        "MODEL_DIR": f"{base}/model",
        "MODULE_DIR": _code_dir(context),
        "MODULE_NAME": training["module_name"],
        "NETWORK_INTERFACE_NAME": context.network_interface,
        "NUM_CPUS": context.cpus,
        "NUM_GPUS": context.gpus,
        "NUM_NEURONS": 0,
        "OUTPUT_DATA_DIR": f"{base}/output/data",
        "OUTPUT_DIR": f"{base}/output",
        "OUTPUT_FAILURE": f"{base}/output/failure",
        "OUTPUT_INTERMEDIATE_DIR": f"{base}/output/intermediate",
        "RESOURCE_CONFIG": training["resource_config"],
        "SOURCE_DIR": _code_dir(context),
        "TRAINING_ENV": training,
        "USER_ARGS": user_arguments(spec.hyperparameters),
        "USER_ENTRY_POINT": spec.entry_point,
    }
    environment = {"SAGEMAKER_BASE_DIR": base, "TRAINING_JOB_NAME": context.job_name}
    # The toolkit keeps a hyphen (SM_HP_LEARNING-RATE), the v3 drivers write an underscore. A name spelt so by the user comes last
    # and keeps its own value.
    variables = {f"SM_{name}": _as_variable(value) for name, value in values.items()}
    return environment | {re.sub(r"[^A-Z0-9_]", "_", name): value for name, value in variables.items()} | variables


def _training_environment(spec: JobSpec, context: ScriptContext) -> dict[str, object]:
    """SM_TRAINING_ENV: everything in one JSON object, under the toolkit's own names."""
    base = context.base_dir
    return {
        "additional_framework_parameters": {},
        "channel_input_dirs": _channel_dirs(context),
        "current_host": context.hosts[context.node],
        "current_instance_group": GROUP,
        "current_instance_group_hosts": list(context.hosts),
        "current_instance_type": context.machine_type,
        "distribution_hosts": list(context.hosts),
        "distribution_instance_groups": [],
        "framework_module": None,
        "hosts": list(context.hosts),
        "hyperparameters": spec.hyperparameters,
        "input_config_dir": f"{base}/input/config",
        "input_data_config": _input_data_config(spec, context),
        "input_dir": f"{base}/input",
        "instance_groups": [GROUP],
        "instance_groups_dict": {GROUP: _instance_group(context)},
        "is_hetero": False,
        "is_master": context.node == 0,
        "is_modelparallel_enabled": None,
        "is_smddpmprun_installed": False,
        "job_name": context.job_name,
        "log_level": 20,
        "master_hostname": context.hosts[0],
        "model_dir": f"{base}/model",
        "module_dir": _code_dir(context),
        "module_name": _module_name(spec),
        "network_interface_name": context.network_interface,
        "num_cpus": context.cpus,
        "num_gpus": context.gpus,
        "num_neurons": 0,
        "output_data_dir": f"{base}/output/data",
        "output_dir": f"{base}/output",
        "output_intermediate_dir": f"{base}/output/intermediate",
        "resource_config": _resource_config(context),
        "user_entry_point": spec.entry_point,
    }


#: Hyperparameters with their own types, for $TM_HP_FILE; SageMaker's file beside it holds each value as JSON inside text.
HYPERPARAMETER_FILE = "input/config/tm_hyperparameters.json"


def config_files(spec: JobSpec, context: ScriptContext) -> dict[str, bytes]:
    """Files to write below base_dir before the start: relative path and content."""
    encoded = {name: _json(value) for name, value in spec.hyperparameters.items()}
    return {
        HYPERPARAMETER_FILE: _json(spec.hyperparameters).encode(),
        "input/config/hyperparameters.json": _json(encoded).encode(),
        "input/config/inputdataconfig.json": _json(_input_data_config(spec, context)).encode(),
        "input/config/resourceconfig.json": _json(_resource_config(context)).encode(),
        "input/config/checkpointconfig.json": _json({"LocalPath": _checkpoint_dir(context)}).encode(),
    }


def user_arguments(hyperparameters: Mapping[str, HyperparameterValue]) -> list[str]:
    """Hyperparameters as words for a command line."""
    words: list[str] = []
    for name, value in sorted(hyperparameters.items()):
        if value is None:
            continue
        option = f"--{name}" if len(name) > 1 else f"-{name}"
        pairs = sorted(value.items()) if isinstance(value, dict) else []
        words += [option, ",".join(f"{key}={item}" for key, item in pairs) if isinstance(value, dict) else str(value)]
    return words


def command_line(spec: JobSpec, python: str) -> list[str]:
    """What to execute in the code folder; `python` runs ``.py`` entry points.

    A command without anything for a shell to do is run directly: signals then reach the script itself, and its exit code is ours.
    In a shell command the words are appended, or stand where it says ``"$@"``.
    """
    words = [*user_arguments(spec.hyperparameters), *spec.arguments]
    if spec.entry_point is not None:
        return [*_entry_point_line(spec.entry_point, python), *words]
    if not isinstance(spec.command, str):
        return [*(spec.command or ()), *words]
    if (direct := _direct_words(spec.command)) is not None:
        return [*direct, *words]
    if "$@" in spec.command or not words:
        return ["/bin/sh", "-c", spec.command, "sh", *words]
    return ["/bin/sh", "-c", f"{spec.command.rstrip()} {shlex.join(words)}"]


def command_takes_words(command: str) -> bool:
    """Whether words can follow the command: not after a pipe, a comment, a here-document or the end of a compound command."""
    if _direct_words(command) is not None or "$@" in command:
        return True
    last_line = command.rstrip().rsplit("\n", 1)[-1].replace("||", "")
    last_line = re.sub(r"\$(\{[^{}]*\}|\([^()]*\))", "x", last_line)
    is_closed = re.search(r"([;&)}]|\b(fi|done|esac))$", last_line)
    return not is_closed and not re.search(r"[|#]", last_line) and "<<" not in command


def _entry_point_line(entry_point: str, python: str) -> list[str]:
    script = entry_point if not entry_point.startswith("-") else f"./{entry_point}"
    if entry_point.endswith(".py"):
        return [python, script]
    return ["/bin/sh", script] if entry_point.endswith(".sh") else [f"./{entry_point}"]


def _direct_words(command: str) -> list[str] | None:
    """The words of a command that needs no shell; None when it does, or when its quotes do not close."""
    if re.search(r"[\\|&;<>()$`*?\[\]#~{}\n]", command):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    needs_shell = not words or "=" in words[0] or _SHELL_WORDS.fullmatch(words[0])
    return None if needs_shell else words


def _master_port(context: ScriptContext) -> int:
    # Jobs that share a machine must not share a port, so not SageMaker's 7777; below the range systems hand out by themselves.
    derived = 20_000 + zlib.crc32(f"{context.job_id}-a{context.attempt}".encode()) % 10_000
    return context.master_port if context.master_port is not None else derived


def _code_dir(context: ScriptContext) -> str:
    return context.code_dir or f"{context.base_dir}/code"


def _checkpoint_dir(context: ScriptContext) -> str:
    return context.checkpoint_dir or f"{context.base_dir}/checkpoints"


def _tensorboard_dir(context: ScriptContext) -> str:
    # A folder per attempt: TensorBoard would interleave the curves of two attempts in one.
    return f"{context.base_dir}/output/tensorboard/attempt-{context.attempt}"


def _channel_dirs(context: ScriptContext) -> dict[str, str]:
    return {channel: f"{context.base_dir}/input/data/{channel}" for channel in context.channels}


def _module_name(spec: JobSpec) -> str:
    return (spec.entry_point or "").removesuffix(".py")


def _instance_group(context: ScriptContext) -> dict[str, object]:
    return {"instance_group_name": GROUP, "instance_type": context.machine_type, "hosts": list(context.hosts)}


def _resource_config(context: ScriptContext) -> dict[str, object]:
    return {
        "current_host": context.hosts[context.node],
        "current_instance_type": context.machine_type,
        # The toolkit reads this name, though its own local default writes `current_instance_group`.
        "current_group_name": GROUP,
        "hosts": list(context.hosts),
        "instance_groups": [_instance_group(context)],
        "network_interface_name": context.network_interface,
    }


def _input_data_config(spec: JobSpec, context: ScriptContext) -> dict[str, object]:
    config: dict[str, object] = {}
    for channel in context.channels:
        found = spec.inputs.get(channel)
        given = found if isinstance(found, Input) else Input(uri="")
        config[channel] = {
            "TrainingInputMode": "FastFile" if given.mode == "fastfile" else "File",
            "S3DistributionType": "ShardedByS3Key" if given.distribution == "sharded" else "FullyReplicated",
            "RecordWrapperType": "None",
        }
    return config


def _as_variable(value: object) -> str:
    """Text as it is, nothing as empty text, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    """Compact JSON with sorted keys."""
    return msgspec.json.encode(value, order="sorted").decode()
