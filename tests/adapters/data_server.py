"""A web server on 127.0.0.1 that serves files, and speaks as much S3 as reading needs. It can refuse, break off, wait, count."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"


class DataServer:
    """Objects by key, reachable as http://…/KEY and as s3://bucket/KEY."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        #: how often the body of each key was sent
        self.sent: Counter[str] = Counter()
        self.listings = 0
        #: answers to give before the right ones, for GETs of objects
        self.statuses: list[int] = []
        #: the same, for listings
        self.list_statuses: list[int] = []
        #: send only so many bytes of the next bodies
        self.break_off: list[int] = []
        #: headers that are left out
        self.without: set[str] = set()
        #: called with the key before its body is sent
        self.before = lambda _key: None
        self.authorizations: list[str] = []
        self.go = threading.Event()
        self.go.set()
        #: bytes of a body to send before waiting for `go`
        self.hold_after = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environ(self) -> dict[str, str]:
        """How to reach the bucket."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "hunter2-secret",
            "AWS_REGION": "us-east-1",
        }

    @contextmanager
    def serving(self) -> Iterator[DataServer]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self.go.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _handler(self):  # noqa: C901
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words) -> None:
                pass

            def do_HEAD(self) -> None:
                self._answer(is_head=True)

            def do_GET(self) -> None:
                self._answer(is_head=False)

            def _answer(self, *, is_head: bool) -> None:
                parts = urlsplit(self.path)
                query = parse_qs(parts.query)
                server.authorizations.append(self.headers.get("Authorization", ""))
                key = unquote(parts.path).removeprefix("/").removeprefix(BUCKET).removeprefix("/")
                if "list-type" in query:
                    self._list(query.get("prefix", [""])[0], "delimiter" in query)
                elif not unquote(parts.path).startswith(f"/{BUCKET}") and parts.path.startswith("/nobucket"):
                    self._error(404, "NoSuchBucket")
                else:
                    self._object(key, is_head=is_head)

            def _list(self, prefix: str, has_delimiter: bool) -> None:
                server.listings += 1
                if server.list_statuses:
                    status = server.list_statuses.pop(0)
                    self._error(status, {403: "AccessDenied", 404: "NoSuchBucket"}.get(status, "InternalError"))
                    return
                keys = [key for key in sorted(server.objects) if key.startswith(prefix)]
                folders = sorted({key[: key.index("/", len(prefix)) + 1] for key in keys if "/" in key[len(prefix) :]})
                if has_delimiter:
                    keys = [key for key in keys if "/" not in key[len(prefix) :]]
                contents = "".join(
                    f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
                    f"<ETag>{escape(etag(server.objects[key]))}</ETag><Size>{len(server.objects[key])}</Size></Contents>"
                    for key in keys
                )
                common = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders if has_delimiter)
                self._send(200, f"<ListBucketResult>{contents}{common}</ListBucketResult>".encode(), {})

            def _object(self, key: str, *, is_head: bool) -> None:
                if server.statuses:
                    status = server.statuses.pop(0)
                    self._error(status, {403: "AccessDenied"}.get(status, "InternalError"))
                    return
                if not is_head:
                    server.before(key)
                value = server.objects.get(key)
                if value is None:
                    self._error(404, "NoSuchKey")
                    return
                wanted = self.headers.get("If-Match")
                if wanted is not None and wanted != etag(value):
                    self._error(412, "PreconditionFailed")
                    return
                if not is_head:
                    server.sent[key] += 1
                headers = {"ETag": etag(value), "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}
                status, body = 200, value
                if ranged := self.headers.get("Range"):
                    start, _, end = ranged.removeprefix("bytes=").partition("-")
                    body = value[int(start) : int(end) + 1]
                    headers["Content-Range"] = f"bytes {start}-{int(start) + len(body) - 1}/{len(value)}"
                    status = 206
                self._send(status, b"" if is_head else body, headers, length=len(body))

            def _error(self, status: int, code: str) -> None:
                body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
                self._send(status, b"" if self.command == "HEAD" else body, {}, length=len(body))

            def _send(self, status: int, body: bytes, headers: dict[str, str], length: int | None = None) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name not in server.without:
                        self.send_header(name, value)
                if "Content-Length" in server.without:
                    self.send_header("Connection", "close")
                    self.close_connection = True
                else:
                    self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                cut = server.break_off.pop(0) if server.break_off and status < 300 and headers else None
                first = server.hold_after if headers and not server.go.is_set() else len(body)
                try:
                    self.wfile.write(body[: min(first, len(body) if cut is None else cut)])
                    self.wfile.flush()
                    if first < len(body):
                        server.go.wait(60)
                        self.wfile.write(body[first:])
                except OSError:
                    self.close_connection = True  # the reader has gone
                if cut is not None:
                    self.close_connection = True

        return Handler


def etag(value: bytes) -> str:
    return f'"{hashlib.md5(value).hexdigest()}"'


@contextmanager
def data_server() -> Iterator[DataServer]:
    """A server for one test."""
    with DataServer().serving() as server:
        yield server
