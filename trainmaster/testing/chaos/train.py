"""What does a script do in an attacked world? It counts steps, saves two files that belong together, and writes down what it did.

It runs by itself, as any user's script: nothing of Trainmaster is imported. Its journal lies outside everything that is attacked,
so it is the truth: when it began and what it found, what it saved, and with which code it ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time

NAMES = ("weights", "optimizer")
_TRAILER_BYTES = 32
_PIECES = 3


def content(step: int, size_bytes: int) -> bytes:
    """What a file of this step holds: its step, some bytes, and a hash that tells a torn one."""
    body = b"%08d" % step + bytes([step % 251]) * size_bytes
    return body + hashlib.sha256(body).digest()


def step_in(value: bytes) -> int:
    """The step a file holds; -1: it is torn."""
    body, trailer = value[:-_TRAILER_BYTES], value[-_TRAILER_BYTES:]
    return int(body[:8]) if len(body) >= 8 and hashlib.sha256(body).digest() == trailer else -1


def step_of(values: dict[str, bytes]) -> int:
    """The step both files hold; 0: none is there; -1: torn, or they do not belong together."""
    found = [step_in(values[name]) for name in NAMES if name in values]
    if not found:
        return 0
    return found[0] if len(found) == len(NAMES) and len(set(found)) == 1 else -1


class Trainee:
    """One process of the script."""

    def __init__(self, plan: dict[str, object], environ: dict[str, str]) -> None:
        self.plan = plan
        self.folder = environ["TM_CHECKPOINT_DIR"]
        self.attempt = int(environ["TM_ATTEMPT"])
        self.job = environ["TM_JOB_ID"]
        self.resumed = environ.get("TM_RESUME_CHECKPOINT", "")
        self.journal = os.open(environ["CHAOS_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.step = 0
        self.is_told = False

    def note(self, kind: str, **more: object) -> None:
        """One line, whole or not at all: appended with one write."""
        at_s = time.time()  # noqa: TID251  it runs by itself
        line = {"at": at_s, "kind": kind, "job": self.job, "attempt": self.attempt, "pid": os.getpid(), **more}
        os.write(self.journal, json.dumps(line).encode() + b"\n")

    def number(self, name: str) -> float:
        """A number of the plan."""
        value = self.plan[name]
        assert isinstance(value, int | float)
        return value

    def begin(self) -> None:
        """Look at what was restored, and say so."""
        if self.plan["ignores_term"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGTERM, self._told)
        found: dict[str, bytes] = {}
        for name in NAMES:
            path = os.path.join(self.folder, name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    found[name] = file.read()
        self.step = step_of(found)
        self.note("began", step=self.step, resumed=self.resumed)
        sys.stdout.write(f"attempt {self.attempt} begins at step {self.step}\n")
        sys.stdout.flush()

    def _told(self, *_: object) -> None:
        self.is_told = True

    def train(self) -> int:
        """Count to the end; the exit code."""
        began = self.step
        last, every = self.number("steps"), int(self.number("save_every"))
        while self.step < last:
            time.sleep(self.number("step_s"))
            if self.is_told:
                return self.leave()
            self.step += 1
            sys.stdout.write(f"step {self.step}\n")
            sys.stdout.flush()
            self.hang()
            if self.is_to_crash and self.step - began >= self.number("crash_after"):
                return 3
            if every and self.step % every == 0:
                self.save()
        return 3 if self.is_to_crash else int(self.number("code"))

    @property
    def is_to_crash(self) -> bool:
        """Whether this attempt is one of those that crash."""
        return self.attempt <= self.number("crashes")

    def hang(self) -> None:
        """From a certain step on, nothing happens any more."""
        while self.plan["hangs_at"] is not None and self.step >= self.number("hangs_at") and not self.is_told:
            time.sleep(0.05)

    def leave(self) -> int:
        """Told to go: a last save where the script is so kind."""
        if self.number("save_every") and self.plan["saves_on_term"]:
            self.save()
        return 1

    def save(self) -> None:
        """Two files: over the old ones in place, or beside them and then renamed."""
        self.note("saving", step=self.step)
        value = content(self.step, int(self.number("size_bytes")))
        suffix = "" if self.plan["in_place"] else ".tmp"
        paths = [os.path.join(self.folder, name) for name in NAMES]
        # Both stay open until both are whole: files that are closed one long after the other would not belong together in between.
        files = [open(path + suffix, "wb", buffering=0) for path in paths]  # noqa: SIM115
        for file in files:
            for piece in range(_PIECES):
                begin, end = (len(value) * part // _PIECES for part in (piece, piece + 1))
                view = memoryview(value)[begin:end]
                while view:
                    view = view[file.write(view) or 0 :]
                time.sleep(self.number("piece_s"))
        for file in files:
            file.close()
        for path in paths if suffix else []:
            os.replace(path + suffix, path)
        self.note("saved", step=self.step)


def main() -> None:
    """Entry point: `train.py PLAN`, with the plan as JSON."""
    training = Trainee(json.loads(sys.argv[1]), dict(os.environ))
    training.begin()
    try:
        code = training.train()
    except OSError as error:  # a full disk
        code = error.errno or 1
    training.note("ended", code=code)
    os._exit(code)


if __name__ == "__main__":
    main()
