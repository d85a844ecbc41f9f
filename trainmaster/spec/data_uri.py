"""Where does the address of an input channel point? A path of this machine, a bucket, or one file on a web server."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from .problems import nearest, quoted

BUCKETS = ("s3", "gs", "az")
WEB = ("http", "https")
ALLOWED = "a folder, a file, file:///path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or https://host/file"

#: how the parameters of a signature begin, or, where it has one, what they are called: Amazon's and Google's, older ones, Azure's
_SIGNED = ("x-amz-", "x-goog-")
_PLAIN = {"signature", "expires", "policy", "awsaccesskeyid", "googleaccessid", "key-pair-id"}
_AZURE = {"sig", "sv", "ss", "srt", "sr", "sp", "st", "se", "sip", "spr", "skoid", "sktid", "skt", "ske", "sks", "skv"}


class DataUri(NamedTuple):
    """An address that can be followed."""

    #: empty: a path of this machine
    scheme: str
    #: bucket or host
    place: str
    #: path of this machine, key or prefix in the bucket, or name of the file on a web server
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it names something on this machine."""
        return not self.scheme


def parse_uri(text: str) -> DataUri:
    """The address, or a ValueError that says what is wrong with it."""
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not text.strip():
        raise ValueError(f"is blank, wanted {ALLOWED}")
    if not separator:
        return DataUri("", "", text)
    if scheme == "file":
        return DataUri("", "", _file_path(rest))
    if scheme in BUCKETS:
        return _bucket(scheme, rest)
    if scheme in WEB:
        return _web(text)
    near = nearest(scheme, ["file", *BUCKETS, *WEB])
    raise ValueError(f"found {quoted(f'{scheme}://')}, which is no kind of address known here{near}; wanted {ALLOWED}")


def shown_uri(text: str) -> str:
    """The address as it may be printed and recorded: behind a `?` may be a signature, before an `@` a password."""
    scheme, separator, _ = text.partition("://")
    if scheme.lower() not in WEB or not separator:
        return text
    parts = urlsplit(text)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def unsigned_query(text: str) -> str:
    """What follows the `?` without a signature: two addresses that are signed at different times are one file."""
    parts = [(part.partition("=")[0].lower(), part) for part in urlsplit(text).query.split("&") if part]
    names = {name for name, _ in parts}
    signs = (_AZURE if "sig" in names else set()) | (_PLAIN if "signature" in names else set())
    return "&".join(part for name, part in parts if name not in signs and not name.startswith(_SIGNED))


def _file_path(rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise ValueError("names a file of another machine; write file:///absolute/path")
    return unquote(f"/{path}")


def _bucket(scheme: str, rest: str) -> DataUri:
    bucket, _, key = rest.partition("/")
    key = key.strip("/")
    if not bucket or "@" in bucket:
        raise ValueError(f"has no plain bucket name; write {scheme}://bucket/prefix, credentials come from the environment")
    if key and any(part in {"", ".", ".."} for part in key.split("/")):
        raise ValueError("has an empty part, `.` or `..` in its prefix")
    return DataUri(scheme, bucket, key)


def _web(text: str) -> DataUri:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is no address: {error}") from None
    if not host or any(ord(character) <= 32 for character in text):
        raise ValueError("is no address: wanted https://host/file without spaces")
    if "@" in parts.netloc:
        raise ValueError("holds a password, which would be recorded; put it into ~/.netrc")
    name = unquote(parts.path).rpartition("/")[2]
    if name in {"", ".", ".."} or "\0" in name:
        raise ValueError("names no file; one file can be fetched, such as https://host/data.csv")
    return DataUri(parts.scheme, parts.netloc, name)
