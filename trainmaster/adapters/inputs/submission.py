"""Are the data that a job names on this machine there? Asked when it is submitted: a minute later is too late."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from trainmaster.adapters.inputs.local_data import why_unusable
from trainmaster.errors import InvalidSpec
from trainmaster.spec.data_uri import parse_uri
from trainmaster.spec.job_spec import Input, JobSpec
from trainmaster.spec.problems import join


def settled(spec: JobSpec, folder: Path) -> JobSpec:
    """The spec with the paths of its inputs as they are from everywhere; InvalidSpec for what is not there."""
    inputs = {channel: _settled(channel, given, folder) for channel, given in spec.inputs.items()}
    return replace(spec, inputs=inputs)


def _settled(channel: str, given: str | Input, folder: Path) -> str | Input:
    text = given.uri if isinstance(given, Input) else given
    uri = parse_uri(text)
    if not uri.is_local:
        return given
    path = Path(os.path.normpath(folder / os.path.expanduser(uri.path)))
    wrong, hint = why_unusable(path)
    if wrong:
        raise InvalidSpec(join("inputs", channel), wrong, hint=hint)
    return replace(given, uri=str(path)) if isinstance(given, Input) else str(path)
