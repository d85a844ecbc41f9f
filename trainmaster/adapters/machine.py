"""What does a job run on? The machine's name, processor, memory and GPUs, as somebody who repeats the job must know them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from trainmaster.adapters import host
from trainmaster.core.job import Machine

_HEAD_BYTES = 4096


def this_machine(gpus: Sequence[int]) -> Machine:
    """The machine we are on, with those GPUs of it that the job was given. Costs two small files."""
    return Machine(
        host=os.uname().nodename,
        cpu=_cpu_name(),
        cpus=host.cpu_count(),
        memory=host.memory_bytes(),
        gpus=tuple(_gpu_names(gpus)) if gpus else (),
    )


def _cpu_name() -> str:
    """As the kernel calls it; the architecture where it calls it nothing."""
    with contextlib.suppress(OSError):
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(_HEAD_BYTES).decode(errors="replace").splitlines()
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in {"model name", "Model", "Hardware"}:
                return value.strip()
    return os.uname().machine


def _gpu_names(gpus: Sequence[int], folder: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """From the driver's own files: asking its library takes longer than starting the script."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*/information")):
        with contextlib.suppress(OSError):
            words = [line.partition(":") for line in file.read_text().splitlines()]
            facts = {name.strip(): value.strip() for name, _, value in words}
            found[facts.get("Device Minor", "")] = facts.get("Model", "")
    return [found.get(str(index)) or "GPU" for index in gpus]
