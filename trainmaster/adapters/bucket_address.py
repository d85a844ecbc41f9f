"""How does an address with options become clients for a bucket?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from trainmaster.adapters.bucket_names import to_name
from trainmaster.adapters.bucket_store import BucketStore, Client, Clients
from trainmaster.adapters.store_keys import parse_key
from trainmaster.errors import InvalidConfig

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

#: Our own options; all others are obstore's names for settings of the bucket or of the HTTP client.
TIMEOUT_S = "timeout_s"
TRANSFER_TIMEOUT_S = "transfer_timeout_s"
#: A small request gives up after its own time and at most one retry that began just before: 10 to 20 s.
DEFAULTS_S = {TIMEOUT_S: 10.0, TRANSFER_TIMEOUT_S: 60.0}

_CLIENT_OPTIONS = frozenset(
    {"allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "read_timeout", "user_agent"}
)
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_KINDS = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}

#: One store per name for the whole process, so that opening an address again reaches the same objects.
_memory: dict[str, BucketStore] = {}


def open_memory(name: str) -> BucketStore:
    """The store of this name in this process's memory."""
    if name not in _memory:
        client = MemoryStore()
        store = BucketStore(f"memory://{name}", Clients(client, client, client), is_instant=True)
        return _memory.setdefault(name, store)
    return _memory[name]


def open_bucket(scheme: str, rest: str, options: Mapping[str, str]) -> BucketStore:
    """The store in a bucket; no request is made yet."""
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not bucket or "@" in bucket:
        raise InvalidConfig(
            f"store: the {scheme}:// address has no plain bucket name.",
            hint=f"Write {scheme}://bucket/prefix; credentials go into options or the environment.",
        )
    try:
        name = to_name(parse_key(prefix)) if prefix else None
    except ValueError as error:
        raise InvalidConfig(f"store: {error}.") from None
    clients = _clients(scheme, bucket, name, options)
    return BucketStore(f"{scheme}://{bucket}" + (f"/{prefix}" if prefix else ""), clients, is_instant=False)


def open_clients(scheme: str, bucket: str, options: Mapping[str, str]) -> Clients:
    """Clients for a whole bucket that others keep their objects in; no request is made yet."""
    return _clients(scheme, bucket, None, options, is_read_only=True)


def _clients(scheme: str, bucket: str, prefix: str | None, options: Mapping[str, str], *, is_read_only: bool = False) -> Clients:
    timeouts_s = {name: _seconds(name, options.get(name, default_s)) for name, default_s in DEFAULTS_S.items()}
    config: dict[str, Any] = {
        name: value for name, value in options.items() if name not in _CLIENT_OPTIONS and name not in DEFAULTS_S
    }
    http = {name: value for name, value in options.items() if name in _CLIENT_OPTIONS}
    endpoint = _endpoint(scheme, config)
    if endpoint.startswith("http://"):
        http.setdefault("allow_http", "true")
    if scheme == "s3" and endpoint:
        # Own servers rarely have a DNS name for every bucket.
        config = {"endpoint": endpoint, "virtual_hosted_style_request": "false"} | config

    def client(timeout_s: float, *, retries: int) -> Client:
        patience = _client_options(http, timeout_s)
        retry_config = _retries(timeout_s, retries)
        try:
            made: Client = _KINDS[scheme](bucket, prefix=prefix, config=config, client_options=patience, retry_config=retry_config)
        except (BaseError, ValueError, TypeError) as error:
            named = ", ".join(sorted(options)) or "none"
            raise InvalidConfig(f"store: {str(error).splitlines()[0]}.", hint=f"Check its options: {named}.") from None
        return made

    calls = client(timeouts_s[TIMEOUT_S], retries=5)
    transfers = client(timeouts_s[TRANSFER_TIMEOUT_S], retries=5)
    # Each costs some milliseconds.
    return Clients(calls, transfers, calls if is_read_only else client(timeouts_s[TIMEOUT_S], retries=0))


def _endpoint(scheme: str, config: Mapping[str, str]) -> str:
    named = [config.get("endpoint"), config.get("aws_endpoint"), config.get("endpoint_url")]
    if scheme == "s3":
        named += [os.environ.get(variable) for variable in _ENDPOINT_VARIABLES]
    return next((endpoint for endpoint in named if endpoint), "")


def _client_options(http: Mapping[str, str], timeout_s: float) -> ClientConfig:
    options: ClientConfig = {
        "timeout": timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=timeout_s / 2),
    }
    return {**options, **http}  # type: ignore[typeddict-item]  # obstore parses "true" itself


def _retries(timeout_s: float, retries: int) -> RetryConfig:
    return {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=timeout_s * 0.8),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=2),
            "base": 2,
        },
    }


def _seconds(name: str, value: str | float) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise InvalidConfig(f"store: the option {name} is {value!r}.", hint="Give seconds, from 0.1 to 3600.")
    return seconds
