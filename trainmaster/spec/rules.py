"""Which jobs have the right shape and are still wrong? One small rule each; every rule says all it finds."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator

import msgspec

from .data_uri import parse_uri
from .environment import ENVIRONMENT_RULES
from .job_spec import Input, JobSpec, Resources
from .problems import Problem, join, nearest, quoted, shown
from .script_contract import command_takes_words, is_owned

#: Linux refuses to start a process with one word or variable of 128 KiB or more.
WORD_BYTES_MAX = 100_000
#: Hyperparameters are one variable together with everything else about the job (SM_TRAINING_ENV).
HYPERPARAMETER_BYTES_MAX = 50_000
ENV_BYTES_MAX = 500_000
#: More would be accepted in one go, and looked at by nobody.
COMBINATIONS_MAX = 10_000


def broken_rules(spec: JobSpec) -> list[Problem]:
    """Everything that is wrong across fields."""
    return [problem for rule in RULES for problem in rule(spec)]


def _one_thing_to_run(spec: JobSpec) -> Iterator[Problem]:
    if spec.command is not None and spec.entry_point is not None:
        yield Problem("command", "found beside entry_point, wanted exactly one of the two")
    if spec.command is None and spec.entry_point is None:
        hint = "Such as `command: python train.py` or `entry_point: train.py`."
        yield Problem("command", "is missing, and entry_point too; wanted exactly one of the two", hint)


def _name_can_be_used(spec: JobSpec) -> Iterator[Problem]:
    if spec.name == "last":
        yield Problem("name", 'found "last", which means the newest job in every command', "Choose another name.")


def _command_says_something(spec: JobSpec) -> Iterator[Problem]:
    command = spec.command
    if command is None:
        return
    first = command if isinstance(command, str) else next(iter(command), "")
    if not first.strip():
        yield Problem("command", "is blank, wanted what to run")


def _words_have_a_place(spec: JobSpec) -> Iterator[Problem]:
    if isinstance(spec.command, str) and (spec.hyperparameters or spec.arguments) and not command_takes_words(spec.command):
        yield Problem(
            "command",
            "is a shell script whose end cannot take the hyperparameters and arguments",
            'Write "$@" in the command where they belong.',
        )


def _words_fit(spec: JobSpec) -> Iterator[Problem]:
    commands = [spec.command] if isinstance(spec.command, str) else spec.command or []
    words = [("command", word) for word in commands] + [("arguments", word) for word in spec.arguments]
    for path, word in words:
        if len(word.encode()) > WORD_BYTES_MAX:
            yield Problem(path, f"found {len(word.encode())} bytes in one word, at most {WORD_BYTES_MAX} can be given to a process")


def _paths_stay_inside(spec: JobSpec) -> Iterator[Problem]:
    paths = [("entry_point", spec.entry_point), ("checkpoints.directory", spec.checkpoints.directory)]
    listed = spec.environment.requirements
    paths += [("environment.requirements", listed)] if isinstance(listed, str) else []
    paths += [("environment.conda", spec.environment.conda)]
    paths += [(f"outputs.keep[{index}]", pattern) for index, pattern in enumerate(spec.outputs.keep)]
    for path, found in paths:
        if found is not None and (wrong := _leaves(found)):
            yield Problem(path, f"found {shown(found)}, {wrong}; wanted a path inside the working folder")


def _leaves(path: str) -> str:
    parts = path.split("/")
    if not path.strip():
        return "which is blank"
    if path.startswith(("/", "~")):
        return "which is not relative"
    if ".." in parts:
        return "which contains `..`"
    return "which is the folder itself" if set(parts) <= {"", "."} else ""


def _source_dir_is_named(spec: JobSpec) -> Iterator[Problem]:
    if spec.source_dir is not None and not spec.source_dir.strip():
        yield Problem("source_dir", "is blank, wanted a folder")


def _environment_is_free(spec: JobSpec) -> Iterator[Problem]:
    for section, names in (("env", spec.env), ("secrets", spec.secrets)):
        for name in names:
            hint = "Ask for them with resources.gpus." if name == "CUDA_VISIBLE_DEVICES" else "Choose another name."
            if is_owned(name):
                yield Problem(join(section, name), "is set by Trainmaster and cannot be given", hint)
    for name in spec.secrets:
        if name in spec.env:
            yield Problem(join("secrets", name), "is given in env too, wanted one of the two")


def _environment_fits(spec: JobSpec) -> Iterator[Problem]:
    sizes = {name: len(value.encode()) for name, value in spec.env.items()}
    for name, size in sizes.items():
        if size > WORD_BYTES_MAX:
            yield Problem(join("env", name), f"found {size} bytes, at most {WORD_BYTES_MAX} can be given to a process")
    if sum(sizes.values()) > ENV_BYTES_MAX:
        yield Problem("env", f"found {sum(sizes.values())} bytes in all, at most {ENV_BYTES_MAX} can be given to a process")


def _hyperparameters_are_free(spec: JobSpec) -> Iterator[Problem]:
    for name in spec.hyperparameters:
        yield from _hyperparameter_name(join("hyperparameters", name), name)
    size = len(msgspec.json.encode(spec.hyperparameters))
    if size > HYPERPARAMETER_BYTES_MAX:
        yield Problem(
            "hyperparameters", f"found {size} bytes as JSON, at most {HYPERPARAMETER_BYTES_MAX} can be given to a process"
        )


def _hyperparameter_name(path: str, name: str) -> Iterator[Problem]:
    if name.startswith("sagemaker_"):
        yield Problem(path, "names that start with sagemaker_ are reserved", "Choose another name.")
    if not re.fullmatch(r"[^\s=\-\x00-\x20\x7f][^\s=\x00-\x20\x7f]{0,254}", name):
        yield Problem(path, "as a name: wanted 1 to 255 characters without spaces or =, the first not a dash")


def _grid_can_be_tried(spec: JobSpec) -> Iterator[Problem]:
    if spec.study is None:
        return
    grid = spec.study.grid
    if not grid:
        yield Problem("study.grid", "is empty, wanted at least one parameter with its values", "Such as `grid: {lr: [0.1, 0.01]}`.")
    for name, values in grid.items():
        path = join("study.grid", name)
        yield from _hyperparameter_name(path, name)
        if not values:
            yield Problem(path, "is empty, wanted the values to try")
        texts = [msgspec.json.encode(value) for value in values]
        twice = next((text for index, text in enumerate(texts) if text in texts[:index]), None)
        if twice is not None:
            yield Problem(path, f"found {_cut(twice.decode())} twice, wanted each value once")
    count = math.prod(len(values) for values in grid.values())
    if count > COMBINATIONS_MAX:
        yield Problem(
            "study.grid", f"found {count} combinations, at most {COMBINATIONS_MAX} are possible", "Leave some values out."
        )


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def _channels_are_names(spec: JobSpec) -> Iterator[Problem]:
    for channel in spec.inputs:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", channel):
            yield Problem(join("inputs", channel), "as a name: wanted 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit")


def _channels_have_variables_of_their_own(spec: JobSpec) -> Iterator[Problem]:
    known: dict[str, str] = {}
    for channel in spec.inputs:
        variable = f"SM_CHANNEL_{re.sub('[^A-Z0-9_]', '_', channel.upper())}"
        if variable in known:
            sentence = f"would be {variable} like the channel {known[variable]}"
            yield Problem(join("inputs", channel), sentence, "Choose names that differ in more than case, `-`, `.` and `_`.")
        known.setdefault(variable, channel)


def _channels_lead_somewhere(spec: JobSpec) -> Iterator[Problem]:
    for channel, given in spec.inputs.items():
        path = join("inputs", channel)
        try:
            parse_uri(given.uri if isinstance(given, Input) else given)
        except ValueError as error:
            yield Problem(join(path, "uri") if isinstance(given, Input) else path, str(error))


#: A group that ends in an unbounded repetition and is repeated itself: the classic way to a search that never ends.
_REPEATED_REPEAT = re.compile(r"(?<!\\)[+*]\??\)(?:[+*]|\{\d+,\})")


def _patterns_compile(spec: JobSpec) -> Iterator[Problem]:
    for index, pattern in enumerate(spec.metrics.patterns):
        path = f"metrics.patterns[{index}].regex"
        try:
            with warnings.catch_warnings(action="ignore"):
                compiled = re.compile(pattern.regex.encode(), re.MULTILINE)
        except (re.error, OverflowError, RecursionError, ValueError) as error:
            yield Problem(path, f"found {quoted(pattern.regex)}, which is no regular expression: {str(error)[:100]}")
            continue
        if _REPEATED_REPEAT.search(pattern.regex):
            hint = "Such a pattern can take for ever on one line; write the inner part without `+` or `*`."
            yield Problem(path, f"found {quoted(pattern.regex)}, which repeats a repetition", hint)
        if compiled.groups == 0:
            hint = r"Put the number in a group, such as `loss=([0-9.]+)`."
            yield Problem(path, f"found {quoted(pattern.regex)}, wanted at least one group", hint)
        if compiled.groups > 1 and not compiled.groupindex:
            hint = "Write (?:…) for a group that is no number, or name each group after its metric: (?P<loss>…)."
            yield Problem(path, f"found {quoted(pattern.regex)} with {compiled.groups} groups, wanted one, or named ones", hint)


def _gpus_are_counted(spec: JobSpec) -> Iterator[Problem]:
    gpus = spec.resources.gpus
    if isinstance(gpus, str) and not re.fullmatch(r"(?=.{0,63}[A-Za-z])[A-Za-z0-9._-]{1,64}:[0-9]{1,6}", gpus):
        yield Problem("resources.gpus", f"found {shown(gpus)}, wanted a whole number or TYPE:COUNT such as A100:2")


def _alternatives_name_fields(spec: JobSpec) -> Iterator[Problem]:
    known = [name for name in Resources.__struct_fields__ if name != "alternatives"]
    for index, alternative in enumerate(spec.resources.alternatives):
        for name in alternative:
            if name not in known:
                path = join(f"resources.alternatives[{index}]", name)
                yield Problem(path, f"unknown field{nearest(name, known)}", f"An alternative may have: {', '.join(known)}.")


RULES: tuple[Callable[[JobSpec], Iterator[Problem]], ...] = (
    _one_thing_to_run,
    _name_can_be_used,
    _command_says_something,
    _words_have_a_place,
    _words_fit,
    _paths_stay_inside,
    _source_dir_is_named,
    _environment_is_free,
    _environment_fits,
    _hyperparameters_are_free,
    _grid_can_be_tried,
    _channels_are_names,
    _channels_have_variables_of_their_own,
    _channels_lead_somewhere,
    _patterns_compile,
    _gpus_are_counted,
    _alternatives_name_fields,
    *ENVIRONMENT_RULES,
)
