"""Small packages made on the fly, a folder of them, and an index that serves it: what environments are tested with."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str = "1.0", *, requires: tuple[str, ...] = (), program: bool = False) -> Path:
    """A wheel with one module that knows its version; with `program`, a command of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name}.py": f'VERSION = "{version}"\ndef main():\n    print("{name} speaks")\n',
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if program:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{name} = {name}:main\n"
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(file, text)
    return path


def make_broken_source(folder: Path, name: str) -> Path:
    """A source package whose build fails with words of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    backend = "def _fail(*_, **__):\n    raise RuntimeError('no compiler for snafu')\n"
    backend += "build_wheel = prepare_metadata_for_build_wheel = _fail\n"
    project = f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "{name}"\n'
    project += 'version = "1.0"\n'
    path = folder / f"{name}-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in {"pyproject.toml": project, "backend.py": backend, "PKG-INFO": f"Name: {name}\nVersion: 1.0\n"}.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{file}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


class Index:
    """A package index on 127.0.0.1."""

    def __init__(self, folder: Path, password: str = "") -> None:
        self.folder, self.password = folder, password
        #: paths that were asked for
        self.asked: list[str] = []
        #: nothing is answered before this is set
        self.gate = threading.Event()
        self.gate.set()
        self.url = ""

    def address(self, user: str = "") -> str:
        """Where it is, as a user with a password part reaches it."""
        return self.url.replace("://", f"://{user}@") if user else self.url


@contextmanager
def serving(index: Index) -> Iterator[Index]:
    """Serve the wheels of a folder."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            index.asked.append(self.path)
            index.gate.wait(60)
            wanted = base64.b64encode(f"ada:{index.password}".encode()).decode()
            if index.password and self.headers.get("Authorization") != f"Basic {wanted}":
                self._answer(401, b"no", {"WWW-Authenticate": 'Basic realm="packages"'})
                return
            parts = self.path.strip("/").split("/")
            if parts[0] == "simple" and len(parts) == 2:
                files = sorted(p.name for p in index.folder.iterdir() if p.name.split("-")[0].replace("_", "-") == parts[1])
                body = "".join(f'<a href="/files/{name}">{name}</a>\n' for name in files)
                self._answer(200 if files else 404, f"<!DOCTYPE html><html><body>{body}</body></html>".encode())
            elif parts[0] == "files" and (index.folder / parts[-1]).is_file():
                self._answer(200, (index.folder / parts[-1]).read_bytes())
            else:
                self._answer(404, b"no")

        do_HEAD = do_GET  # noqa: N815

        def _answer(self, code, body, headers=None):
            self.send_response(code)
            for name, value in {"Content-Type": "text/html", "Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
