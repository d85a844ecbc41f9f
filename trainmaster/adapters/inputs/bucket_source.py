"""How are data found and read in a bucket? One listing below a prefix, or one object; reads ask for the version that was listed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, PreconditionError

from trainmaster.adapters.bucket_address import open_clients
from trainmaster.adapters.bucket_errors import translate
from trainmaster.adapters.folder_files import Progress
from trainmaster.adapters.inputs.source import DataChanged, NoData, SourceObject, cache_name
from trainmaster.errors import StoreUnavailable
from trainmaster.spec.data_uri import DataUri

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta

LIST_PAGE = 1_000
PART_BYTES = 8 << 20
#: parts of one object, and of all objects together: each is in memory for a while
PARTS_AT_ONCE, ALL_PARTS_AT_ONCE = 4, 12
#: A slow line shared by many reads needs its time for each; one that sends nothing at all for a while is dead.
PATIENCE = {"transfer_timeout_s": "3600", "connect_timeout": "10s", "read_timeout": "60s"}

#: The submitter's variables that speak of buckets, and obstore's names for them.
_OPTIONS: dict[str, dict[str, str]] = {
    "s3": {
        **{
            f"AWS_{name.upper()}": name
            for name in (
                "access_key_id",
                "secret_access_key",
                "session_token",
                "region",
                "skip_signature",
                "virtual_hosted_style_request",
                "request_payer",
                "container_credentials_relative_uri",
                "container_credentials_full_uri",
                "container_authorization_token_file",
                "web_identity_token_file",
                "role_arn",
            )
        },
        "AWS_DEFAULT_REGION": "default_region",
        "AWS_ENDPOINT": "endpoint",
        "AWS_ENDPOINT_URL": "endpoint",
        "AWS_ENDPOINT_URL_S3": "endpoint",
        "AWS_ALLOW_HTTP": "allow_http",
    },
    "gs": {
        "GOOGLE_SERVICE_ACCOUNT": "service_account",
        "GOOGLE_SERVICE_ACCOUNT_PATH": "service_account",
        "GOOGLE_SERVICE_ACCOUNT_KEY": "service_account_key",
        "GOOGLE_APPLICATION_CREDENTIALS": "application_credentials",
        "GOOGLE_SKIP_SIGNATURE": "skip_signature",
    },
    "az": {
        "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
        "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
        "AZURE_STORAGE_SAS_TOKEN": "sas_token",
        "AZURE_STORAGE_SAS_KEY": "sas_token",
        "AZURE_STORAGE_ENDPOINT": "endpoint",
        "AZURE_STORAGE_USE_EMULATOR": "use_emulator",
        "AZURE_STORAGE_CLIENT_ID": "client_id",
        "AZURE_STORAGE_CLIENT_SECRET": "client_secret",
        "AZURE_STORAGE_TENANT_ID": "tenant_id",
        "AZURE_SKIP_SIGNATURE": "skip_signature",
        "AZURE_ALLOW_HTTP": "allow_http",
    },
}


def options_from(scheme: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What the submitter's environment says about buckets of this kind; a later variable of the table wins."""
    return {option: environ[name] for name, option in _OPTIONS[scheme].items() if environ.get(name)}


class BucketSource:
    """A prefix or an object in a bucket."""

    def __init__(self, uri: DataUri, environ: Mapping[str, str], **patience: str) -> None:
        self._scheme, self._bucket, self._prefix = uri
        options = {**options_from(uri.scheme, environ), **PATIENCE, **patience}
        self._endpoint = options.get("endpoint", "").rpartition("@")[2]
        self._clients = open_clients(uri.scheme, uri.place, options)
        self._parts = threading.BoundedSemaphore(ALL_PARTS_AT_ONCE)

    @property
    def uri(self) -> str:
        """The address."""
        return f"{self._scheme}://{self._bucket}" + (f"/{self._prefix}" if self._prefix else "")

    def pages(self) -> Iterator[list[SourceObject]]:
        """Everything below the prefix; else the object of this name. The next page is on its way while one is worked on."""
        is_empty = True
        with ThreadPoolExecutor(1) as ahead:
            listing = iter(obstore.list(self._clients.calls, self._prefix or None, chunk_size=LIST_PAGE))
            coming = ahead.submit(next, listing, None)
            while True:
                try:
                    page = coming.result()
                except (BaseError, ValueError, OSError) as error:
                    raise self._listing_trouble(error) from error
                if page is None:
                    break
                coming = ahead.submit(next, listing, None)
                is_empty = is_empty and not page
                yield [self._found(meta) for meta in page]
        if is_empty:
            yield [self._lone_object()]

    def _listing_trouble(self, error: Exception) -> Exception:
        text = str(error).partition("\n\nDebug source")[0]
        if "path segment" in text or "parsing Path" in text:
            reason = text.splitlines()[0].rpartition("Path ")[2]
            return NoData(f"{self.uri} has a key that cannot be a file: {reason[:200]}")
        return translate(error, f"{self.uri} cannot be listed")

    def _lone_object(self) -> SourceObject:
        try:
            if self._prefix:
                return self._found(obstore.head(self._clients.calls, self._prefix))
        except FileNotFoundError:
            pass
        except BaseError as error:
            raise translate(error, f"{self.uri} cannot be read") from error
        raise NoData(f"there is nothing at {self.uri}{self._nearby()}")

    def _nearby(self) -> str:
        """What else there is beside a prefix that is not there."""
        parent, _, name = self._prefix.rpartition("/")
        try:
            beside = obstore.list_with_delimiter(self._clients.calls, parent or None)
        except (BaseError, ValueError):
            return ""
        names = [*beside["common_prefixes"], *(meta["path"] for meta in beside["objects"])]
        near = get_close_matches(name, [path.rpartition("/")[2] for path in names], n=1)
        return f"; did you mean {self._scheme}://{self._bucket}/{parent}{'/' if parent else ''}{near[0]}?" if near else ""

    def read(self, found: SourceObject, descriptor: int, progress: Progress) -> None:
        """In one request, or in parts several at once; each asks for the version that was listed."""
        if found.size_bytes <= 2 * PART_BYTES:
            self._read_part(found, descriptor, 0, found.size_bytes)
            progress(found.size_bytes)
            return
        starts = range(0, found.size_bytes, PART_BYTES)

        def part(start: int) -> None:
            size = min(PART_BYTES, found.size_bytes - start)
            with self._parts:
                self._read_part(found, descriptor, start, size)
            progress(size)

        with ThreadPoolExecutor(PARTS_AT_ONCE) as several:
            list(several.map(part, starts))

    def _read_part(self, found: SourceObject, descriptor: int, start: int, size: int) -> None:
        options: GetOptions = {} if size == found.size_bytes else {"range": (start, start + size)}
        if found.etag:
            options["if_match"] = found.etag
        shown = f"{self._scheme}://{self._bucket}/{found.key}"
        try:
            result = obstore.get(self._clients.transfers, found.key, options=options)
            if result.meta["size"] != found.size_bytes:
                raise DataChanged(f"{shown} changed while it was fetched")
            value = memoryview(result.bytes())
        except (FileNotFoundError, PreconditionError) as error:
            what = "vanished" if isinstance(error, FileNotFoundError) else "changed"
            raise DataChanged(f"{shown} {what} while it was fetched") from error
        except BaseError as error:
            raise translate(error, f"{shown} cannot be read") from error
        if len(value) != size:
            raise StoreUnavailable(f"{shown} ended after {len(value)} of {size} bytes.")
        while value:
            written = os.pwrite(descriptor, value, start)
            value, start = value[written:], start + written

    def close(self) -> None:
        """Nothing is held."""

    def _found(self, meta: ObjectMeta) -> SourceObject:
        key, size = meta["path"], meta["size"]
        modified_s = meta["last_modified"].timestamp()
        path = key.removeprefix(f"{self._prefix}/") if self._prefix else key
        if key == self._prefix:
            path = key.rpartition("/")[2]
        version = meta["version"] or meta["e_tag"] or str(modified_s)
        return SourceObject(
            path=path,
            key=key,
            size_bytes=size,
            version=version,
            etag=meta["e_tag"] or "",
            modified_s=modified_s,
            name=cache_name(self._endpoint, self._scheme, self._bucket, key, version, size, modified_s),
        )
