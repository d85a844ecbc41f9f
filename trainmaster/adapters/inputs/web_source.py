"""How is one file fetched from a web server? One GET: its headers tell the version, its body comes only when it is wanted."""

from __future__ import annotations

import base64
import http.client
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from blake3 import blake3

from trainmaster.adapters.folder_files import Progress
from trainmaster.adapters.inputs.source import DataChanged, NoData, SourceObject, cache_name
from trainmaster.errors import StoreRejected, StoreUnavailable
from trainmaster.spec.data_uri import parse_uri, shown_uri, unsigned_query

COPY_BYTES = 1 << 20
#: Whoever answers so may answer otherwise in a moment.
_PASSING = {408, 425, 429, 500, 502, 503, 504}


class _Answer(Protocol):
    headers: Mapping[str, str]

    def read(self, size: int) -> bytes: ...

    def close(self) -> None: ...


class WebSource:
    """One file on a web server."""

    def __init__(self, url: str, environ: Mapping[str, str], scratch: Path, timeout_s: float = 60.0) -> None:
        self._url, self._name = url, parse_uri(url).path
        self._timeout_s = timeout_s
        self._scratch = scratch
        self._authorization = _from_netrc(url, environ)
        #: the body, where the headers do not tell its version or its size
        self._body: IO[bytes] | None = None

    @property
    def uri(self) -> str:
        """The address, without a signature."""
        return shown_uri(self._url)

    def pages(self) -> Iterator[list[SourceObject]]:
        """The file; if the server gives no version or size, it is fetched now and known by its hash."""
        with closing(self._ask()) as answer:
            yield [_from_headers(self._url, self._name, answer.headers) or self._from_body(answer)]

    def _from_body(self, answer: _Answer) -> SourceObject:
        self.close()
        self._body = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115  read again by `read`
        hasher = blake3()
        while part := self._part(answer):
            hasher.update(part)
            self._body.write(part)
        size, version = self._body.tell(), hasher.hexdigest()
        _refuse_short(self.uri, size, answer.headers)
        name = cache_name(shown_uri(self._url), version, size)
        return SourceObject(path=self._name, key=self._name, size_bytes=size, version=version, name=name)

    def read(self, found: SourceObject, descriptor: int, progress: Progress) -> None:
        """The body of the version that was found."""
        with open(descriptor, "wb", closefd=False) as file:
            if self._body is not None:
                self._body.seek(0)
                shutil.copyfileobj(self._body, file, COPY_BYTES)
                progress(found.size_bytes)
                return
            done = 0
            with closing(self._ask()) as answer:
                now = _from_headers(self._url, self._name, answer.headers)
                if now is None or now.name != found.name:
                    raise DataChanged(f"{self.uri} changed while it was fetched")
                while part := self._part(answer):
                    file.write(part)
                    done += len(part)
                    progress(len(part))
            if done != found.size_bytes:
                raise StoreUnavailable(f"{self.uri} ended after {done} of {found.size_bytes} bytes.")

    def close(self) -> None:
        """Let go of a body that was fetched to know it."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def _ask(self) -> _Answer:
        request = urllib.request.Request(self._url, headers={"User-Agent": "trainmaster", "Accept-Encoding": "identity"})
        if self._authorization:
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            answer: _Answer = urllib.request.urlopen(request, timeout=self._timeout_s)
            return answer
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code, error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(f"{self.uri} cannot be reached: {_why(error)}") from None

    def _refusal(self, code: int, reason: str) -> Exception:
        said = f"the server answers {code} {reason}".strip()
        if code in {404, 410}:
            return NoData(f"there is nothing at {self.uri}: {said}")
        if code in _PASSING:
            return StoreUnavailable(f"{self.uri} cannot be read now: {said}")
        hint = "Put name and password into ~/.netrc." if code == 401 else "Check the address and the permission."
        return StoreRejected(f"{self.uri} cannot be read: {said}", hint=hint)

    def _part(self, answer: _Answer) -> bytes:
        try:
            return answer.read(COPY_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(f"{self.uri} broke off: {_why(error)}") from None


def _from_headers(url: str, name: str, headers: Mapping[str, str]) -> SourceObject | None:
    """What the server says about the file; None when that is not enough to know it again."""
    version = headers.get("ETag") or headers.get("Last-Modified") or ""
    length = headers.get("Content-Length") or ""
    if not version or not length.isdecimal() or headers.get("Content-Encoding", "identity") != "identity":
        return None
    try:
        modified_s = parsedate_to_datetime(headers["Last-Modified"] or "").timestamp()
    except (KeyError, TypeError, ValueError):
        modified_s = 0.0
    size = int(length)
    identity = cache_name(shown_uri(url), unsigned_query(url), version, size, modified_s)
    return SourceObject(path=name, key=name, size_bytes=size, version=version, modified_s=modified_s, name=identity)


def _refuse_short(uri: str, size: int, headers: Mapping[str, str]) -> None:
    length = headers.get("Content-Length") or ""
    if length.isdecimal() and int(length) != size:
        raise StoreUnavailable(f"{uri} ended after {size} of {length} bytes.")


def _from_netrc(url: str, environ: Mapping[str, str]) -> str:
    """What the submitter's ~/.netrc says for this host, as a header."""
    import netrc

    path = Path(environ.get("NETRC") or Path(environ.get("HOME") or "/nonexistent") / ".netrc")
    try:
        found = netrc.netrc(str(path)).authenticators(urlsplit(url).hostname or "")
    except (OSError, netrc.NetrcParseError):
        return ""
    if found is None:
        return ""
    return "Basic " + base64.b64encode(f"{found[0]}:{found[2]}".encode()).decode()


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return (getattr(reason, "strerror", None) or str(reason) or type(error).__name__)[:200]
