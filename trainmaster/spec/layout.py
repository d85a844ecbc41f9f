"""Under which key does each thing lie in the object store? Nobody else builds a key.

code/<sha256>.tar.zst                               snapshot of a source folder
envs/<key>/lock.txt                                 resolved environment: every package with its version and hashes
wheels/<sha256>.json                                wheel folder of a submission: file name → sha256
wheels/<sha256>/<file name>                         one wheel
jobs/<job>/spec.json                                what was asked
jobs/<job>/record.json                              sealed at the end: everything needed to run it again
jobs/<job>/inputs/<channel>.json                    what the job read: files, sizes, versions
jobs/<job>/pruned.json                              when checkpoints, logs and outputs were removed and the model was kept
jobs/<job>/attempts/<n>/open.json                   written before the launch: the accepted head to resume from
jobs/<job>/attempts/<n>/claim                       created once: by the runner, or closed by the control plane
jobs/<job>/attempts/<n>/order.json                  what the control plane wants of a running attempt: stop, or closed
jobs/<job>/attempts/<n>/inputs/<channel>.json       the same of an attempt that found other data than the first
jobs/<job>/attempts/<n>/<node>/heartbeat.json       overwritten: the attempt lease and what the runner does now
jobs/<job>/attempts/<n>/<node>/log/<seq>            output of the job, immutable numbered chunks
jobs/<job>/attempts/<n>/<node>/metrics/<seq>        metrics, JSON lines, immutable numbered chunks
jobs/<job>/attempts/<n>/<node>/runner.log           what the runner says about itself
jobs/<job>/attempts/<n>/<node>/setup.log            output of resolving, installing and the setup commands
jobs/<job>/attempts/<n>/<node>/exit.json            how the attempt ended on this node
jobs/<job>/checkpoints/<attempt>-<seq>/files/…      a checkpoint's files
jobs/<job>/checkpoints/<attempt>-<seq>/manifest.json  sizes and hashes
jobs/<job>/checkpoints/<attempt>-<seq>/COMMIT       the checkpoint counts from here on
jobs/<job>/model/…  jobs/<job>/output/…  jobs/<job>/working/…   what the job made
"""

from __future__ import annotations

from typing import NewType

#: A key in the object store: relative, "/"-separated, no empty part.
Key = NewType("Key", str)

SEQ_DIGITS = 8


def code(sha256: str) -> Key:
    """Snapshot of a source folder."""
    return Key(f"code/{sha256}.tar.zst")


def environment_lock(key: str) -> Key:
    """What a resolved environment holds; enough to build it again."""
    return Key(f"envs/{key}/lock.txt")


def wheelhouse(sha256: str) -> Key:
    """Which wheels a wheel folder held."""
    return Key(f"wheels/{sha256}.json")


def wheel(sha256: str, name: str) -> Key:
    """One wheel."""
    return Key(f"wheels/{sha256}/{name}")


def job(job_id: str) -> Key:
    """Prefix of everything about one job."""
    return Key(f"jobs/{job_id}")


def spec(job_id: str) -> Key:
    """What was asked."""
    return Key(f"jobs/{job_id}/spec.json")


def record(job_id: str) -> Key:
    """The sealed record."""
    return Key(f"jobs/{job_id}/record.json")


def inputs(job_id: str, channel: str) -> Key:
    """What the job read from a channel."""
    return Key(f"jobs/{job_id}/inputs/{channel}.json")


def attempt_inputs(job_id: str, number: int, channel: str) -> Key:
    """What an attempt read from a channel, where that differs from the job's first."""
    return Key(f"{attempt(job_id, number)}/inputs/{channel}.json")


def pruned(job_id: str) -> Key:
    """When everything but record, metrics and model was removed."""
    return Key(f"jobs/{job_id}/pruned.json")


def attempt(job_id: str, number: int) -> Key:
    """Prefix of one attempt."""
    return Key(f"jobs/{job_id}/attempts/{number}")


def opened(job_id: str, number: int) -> Key:
    """The accepted head this attempt resumes from."""
    return Key(f"{attempt(job_id, number)}/open.json")


def claim(job_id: str, number: int) -> Key:
    """The one claim of an attempt."""
    return Key(f"{attempt(job_id, number)}/claim")


def order(job_id: str, number: int) -> Key:
    """What the control plane wants of a running attempt."""
    return Key(f"{attempt(job_id, number)}/order.json")


def heartbeat(job_id: str, number: int, node: int = 0) -> Key:
    """The attempt lease and what the runner does now."""
    return Key(f"{attempt(job_id, number)}/{node}/heartbeat.json")


def exit_record(job_id: str, number: int, node: int = 0) -> Key:
    """How the attempt ended on a node."""
    return Key(f"{attempt(job_id, number)}/{node}/exit.json")


def runner_log(job_id: str, number: int, node: int = 0) -> Key:
    """What the runner says about itself."""
    return Key(f"{attempt(job_id, number)}/{node}/runner.log")


def setup_log(job_id: str, number: int, node: int = 0) -> Key:
    """Output of resolving, installing and the setup commands."""
    return Key(f"{attempt(job_id, number)}/{node}/setup.log")


def log_prefix(job_id: str, number: int, node: int = 0) -> Key:
    """Prefix of the log chunks of a node."""
    return Key(f"{attempt(job_id, number)}/{node}/log")


def metrics_prefix(job_id: str, number: int, node: int = 0) -> Key:
    """Prefix of the metric chunks of a node."""
    return Key(f"{attempt(job_id, number)}/{node}/metrics")


def chunk(prefix: Key, seq: int) -> Key:
    """One immutable chunk; names sort in the order they were written."""
    return Key(f"{prefix}/{seq:0{SEQ_DIGITS}d}")


def checkpoints(job_id: str) -> Key:
    """Prefix of all checkpoints of a job."""
    return Key(f"jobs/{job_id}/checkpoints")


def checkpoint_id(attempt_number: int, seq: int) -> str:
    """Name of a checkpoint; it carries the attempt, so that late commits of old attempts can be told apart."""
    return f"{attempt_number}-{seq:06d}"


def parse_checkpoint_id(checkpoint: str) -> tuple[int, int]:
    """Attempt and sequence number of a checkpoint."""
    attempt_number, seq = checkpoint.split("-", 1)
    return int(attempt_number), int(seq)


def checkpoint(job_id: str, checkpoint_name: str) -> Key:
    """Prefix of one checkpoint."""
    return Key(f"jobs/{job_id}/checkpoints/{checkpoint_name}")


def checkpoint_file(job_id: str, checkpoint_name: str, path: str) -> Key:
    """One file of a checkpoint."""
    return Key(f"{checkpoint(job_id, checkpoint_name)}/files/{path}")


def manifest(job_id: str, checkpoint_name: str) -> Key:
    """Sizes and hashes of a checkpoint's files."""
    return Key(f"{checkpoint(job_id, checkpoint_name)}/manifest.json")


def commit(job_id: str, checkpoint_name: str) -> Key:
    """The marker that makes a checkpoint count."""
    return Key(f"{checkpoint(job_id, checkpoint_name)}/COMMIT")


def is_commit(job_id: str, key: str) -> bool:
    """Whether a key is such a marker; a file of a checkpoint may have the same name."""
    name, slash, rest = key.removeprefix(f"{checkpoints(job_id)}/").partition("/")
    return bool(slash) and rest == "COMMIT" and key == commit(job_id, name)


def model(job_id: str) -> Key:
    """Prefix of the model."""
    return Key(f"jobs/{job_id}/model")


def output(job_id: str) -> Key:
    """Prefix of the other outputs."""
    return Key(f"jobs/{job_id}/output")


def working(job_id: str) -> Key:
    """Prefix of files kept from the working folder."""
    return Key(f"jobs/{job_id}/working")
