"""What happened in the store? Requests the server answered, turned into what the checkers read: claims, closings, commits, logs.

The bytes of checkpoints are looked at as they pass, so a commit is judged by what the server was given, also when it is removed
soon after. Files larger than a part of a multipart upload are not followed; the scripts here save smaller ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

import msgspec
from blake3 import blake3

from trainmaster.adapters.bucket_names import to_key
from trainmaster.core.facts import Heartbeat
from trainmaster.core.messages import ClaimFile, Manifest, OrderFile, OrderKind
from trainmaster.spec import layout
from trainmaster.spec.layout import Key
from trainmaster.testing.chaos.http_ear import Exchange
from trainmaster.testing.chaos.proxy import Caller
from trainmaster.testing.chaos.train import NAMES, step_in
from trainmaster.testing.witness import Beat, Claimed, Closed, Event, Flushed, Marked, Unmarked

_DELETED = re.compile(rb"<Key>([^<]*)</Key>")
_LOG = re.compile(r"jobs/[^/]+/attempts/\d+/\d+/log/\d+")


class StoreWitness:
    """Listens to what was written and removed."""

    def __init__(self, root: str, note: Callable[[Event], None], zero_s: float) -> None:
        #: path of the store in the server: /bucket/prefix/
        self._root, self._note = root, note
        #: when this world began, in seconds since 1970
        self._zero_s = zero_s
        self._manifests: dict[str, Manifest] = {}
        #: key of a checkpoint's file → its hash and the step in it
        self._files: dict[str, tuple[str, int]] = {}
        self._runners: dict[tuple[str, int], str] = {}

    def heard(self, exchange: Exchange, caller: Caller) -> None:
        """The server answered a request."""
        if not 200 <= exchange.status < 300:
            return
        target = urlsplit(exchange.target)
        if exchange.method == "POST" and "delete" in target.query.split("&"):
            for name in _DELETED.findall(exchange.body):
                self._removed(to_key(_unescaped(name.decode()).removeprefix(self._root.split("/", 2)[2])), exchange.answered_s)
            return
        key = to_key(unquote(target.path).removeprefix(self._root))
        if exchange.method == "DELETE":
            self._removed(key, exchange.answered_s)
        elif exchange.method == "PUT" and "uploadId=" not in target.query:
            self._written(key, exchange, caller)

    def _written(self, key: Key, exchange: Exchange, caller: Caller) -> None:
        parts = key.split("/")
        if _LOG.fullmatch(key):
            self._note(Flushed(exchange.answered_s, key, exchange.body))
        elif len(parts) >= 5 and parts[2] == "attempts":
            self._attempt_written(parts, exchange)
        elif len(parts) >= 5 and parts[2] == "checkpoints":
            self._checkpoint_written(key, parts, exchange, caller)

    def _attempt_written(self, parts: list[str], exchange: Exchange) -> None:
        job_id, attempt = parts[1], int(parts[3])
        if parts[4] == "claim":
            runner = msgspec.json.decode(exchange.body, type=ClaimFile).runner
            self._runners[job_id, attempt] = runner
            self._note(Claimed(exchange.sent_s, job_id, attempt, runner))
            if not runner:
                self._note(Closed(exchange.sent_s, job_id, attempt))
        elif parts[-1] == "heartbeat.json":
            until_s = msgspec.json.decode(exchange.body, type=Heartbeat).lease_until.timestamp() - self._zero_s
            self._note(Beat(exchange.answered_s, job_id, attempt, until_s))
        elif parts[4] == "order.json" and msgspec.json.decode(exchange.body, type=OrderFile).kind is OrderKind.CLOSE:
            self._note(Closed(exchange.sent_s, job_id, attempt))

    def _checkpoint_written(self, key: Key, parts: list[str], exchange: Exchange, caller: Caller) -> None:
        job_id, name = parts[1], parts[3]
        if parts[4] == "files":
            self._files[key] = (blake3(exchange.body).hexdigest(), step_in(exchange.body))
        elif parts[4] == "manifest.json":
            self._manifests[key] = msgspec.json.decode(exchange.body, type=Manifest)
        elif layout.is_commit(job_id, key):
            attempt = layout.parse_checkpoint_id(name)[0]
            runner = self._runner(job_id, attempt, caller)
            manifest = self._manifests.get(layout.manifest(job_id, name))
            step = -1 if manifest is None else step_of_files(job_id, manifest, self._files)
            self._note(Marked(exchange.sent_s, job_id, attempt, runner, name, step))

    def _runner(self, job_id: str, attempt: int, caller: Caller) -> str:
        """Who marked it: the claim's runner by its process number, else somebody else."""
        claimed = self._runners.get((job_id, attempt), "")
        is_claimant = not caller.pid or f":{caller.pid}:" in claimed
        return claimed if is_claimant else f"process {caller.pid}"

    def _removed(self, key: Key, at_s: float) -> None:
        parts = key.split("/")
        self._files.pop(key, None)
        self._manifests.pop(key, None)
        if len(parts) >= 5 and parts[2] == "checkpoints" and layout.is_commit(parts[1], key):
            self._note(Unmarked(at_s, parts[1], parts[3]))


def step_of_files(job_id: str, manifest: Manifest, files: Mapping[str, tuple[str, int]]) -> int:
    """The step that all files of a checkpoint hold; -1: some are missing or other than written down, or do not belong together."""
    found: dict[str, int] = {}
    for file in manifest.files:
        digest, step = files.get(layout.checkpoint_file(job_id, file.stored_in, file.path), ("", -1))
        if digest != file.blake3:
            return -1
        if file.path in NAMES:
            found[file.path] = step
    steps = set(found.values())
    return steps.pop() if len(found) == len(NAMES) and len(steps) == 1 else -1


def _unescaped(text: str) -> str:
    for name, char in (("lt", "<"), ("gt", ">"), ("quot", '"'), ("apos", "'"), ("amp", "&")):
        text = text.replace(f"&{name};", char)
    return text
