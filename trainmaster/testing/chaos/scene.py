"""Where does an attacked world live? A temporary folder with a home, a source folder, a journal, a small disk, and commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from trainmaster.testing.chaos import train
from trainmaster.testing.chaos.draw import ChaosJob
from trainmaster.testing.chaos.processes import MARK
from trainmaster.testing.s3_server import S3Server

PREFIX = "team/a"
LEASE_S, HEARTBEAT_S = 6.0, 1.0
SMALL_MB = 64
_BALLAST_BYTES = 1 << 20


class CommandEnd(Struct, frozen=True, kw_only=True):
    """How a command ended."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    took_s: float

    @property
    def is_killed(self) -> bool:
        """Whether a signal ended it."""
        return self.code < 0


class Scene:
    """The folders and settings of one world."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.source, self.said = folder / "home", folder / "source", folder / "commands"
        self.journal = folder / "journal.jsonl"
        self.mark = secrets.token_hex(8)
        self.environ: dict[str, str] = {}
        self._count = 0
        for made in (self.home, self.source, self.said, folder / "bin"):
            made.mkdir(parents=True)
        self.journal.touch()
        shutil.copy(str(train.__file__), self.source / "train.py")
        (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
        #: the small disk, where there is one
        self.small: Path | None = None

    def settle_in(self, server: S3Server, port: int, package: Path) -> None:
        """Settings for every command; `package` is the folder of the Trainmaster that is attacked."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINMASTER_", "TM_", "AWS_")) and k != "VIRTUAL_ENV"}
        self.environ = {
            **kept,
            MARK: self.mark,
            "PYTHONPATH": str(package),
            "PATH": f"{self.folder / 'bin'}:{kept['PATH']}",
            "CHAOS_JOURNAL": str(self.journal),
            "TRAINMASTER_HOME": str(self.home),
            "TRAINMASTER_STORE": f"{server.url}/{PREFIX}",
            "TRAINMASTER_HEARTBEAT_S": str(HEARTBEAT_S),
            "TRAINMASTER_ATTEMPT_LEASE_S": str(LEASE_S),
            "TRAINMASTER_LOOK_S": "0.5",
            "TRAINMASTER_DRIVER_IDLE_S": "1",
            "TRAINMASTER_CPUS": "4",
            "TRAINMASTER_GPUS": "0",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }

    def job_file(self, job: ChaosJob) -> str:
        """Write down what is asked; the file's name."""
        spec = {
            "name": job.name,
            "entry_point": "train.py",
            "arguments": [msgspec.json.encode(job.script).decode()],
            "checkpoints": {"settle": job.settle_s, "keep": job.keep},
            "retry": {"failures": job.failures, "interruptions": job.interruptions, "backoff": 0.1, "backoff_max": 1.0},
            "limits": {"grace": job.grace_s},
        }
        (self.source / f"{job.name}.json").write_text(json.dumps(spec))
        return f"{job.name}.json"

    async def command(self, *words: str, timeout_s: float, now_s: Callable[[], float]) -> CommandEnd:
        """Give a command and wait for its end; code 124: it did not end in time and was killed."""
        self._count += 1
        stem = self.said / f"{self._count:05d}-{words[0]}"
        began_s = now_s()
        process = self._start(stem, words)
        ended = asyncio.ensure_future(asyncio.to_thread(process.wait))
        await asyncio.wait({ended}, timeout=timeout_s)
        is_late = not ended.done()
        if is_late:
            process.kill()
        code = await ended
        code = 124 if is_late else code
        return CommandEnd(words=words, code=code, out=_text(stem, "out"), err=_text(stem, "err"), took_s=now_s() - began_s)

    def _start(self, stem: Path, words: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with open(f"{stem}.out", "wb") as out, open(f"{stem}.err", "wb") as err:
            return subprocess.Popen(
                [Path(sys.prefix) / "bin" / "trainmaster", *words],
                cwd=self.source,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    # -- the small disk

    @contextlib.contextmanager
    def small_disk(self, below: Path) -> Iterator[None]:
        """Mount a small disk there until the block ends; what lay on it stays."""
        below.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_MB}m", "none", below], check=True)
        self.small = below
        try:
            yield
        finally:
            self.free()
            kept = self.folder / "kept"
            shutil.copytree(below, kept, symlinks=True, ignore_dangling_symlinks=True)
            subprocess.run(["umount", "-l", below], check=True)
            self.small = None
            shutil.copytree(kept, below, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(kept)

    def fill(self) -> None:
        """Leave no room on the small disk."""
        assert self.small is not None
        with contextlib.suppress(OSError), open(self.small / "ballast", "wb", buffering=0) as file:
            for size in (_BALLAST_BYTES, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        """Make room again."""
        if self.small is not None:
            (self.small / "ballast").unlink(missing_ok=True)


def _text(stem: Path, kind: str) -> str:
    return Path(f"{stem}.{kind}").read_text(errors="replace")


def may_mount() -> bool:
    """Whether this user may make a small disk."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


def copied_package(folder: Path, changes: dict[str, tuple[str, str]]) -> Path:
    """A copy of Trainmaster: whoever works on it meanwhile does not change what is attacked.

    A line may be made wrong here and there, to prove that it is found: file → (old text, new text).
    """
    source = Path(train.__file__).parents[2]
    shutil.copytree(source, folder / "trainmaster")
    for name, (old, new) in changes.items():
        path = folder / "trainmaster" / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name} holds {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new))
    return folder
