"""What does a failure of obstore mean for the caller? Foreign text is read here and nowhere else."""

from __future__ import annotations

import re

from trainmaster.errors import StoreError, StoreFull, StoreRejected, StoreUnavailable

#: What S3, GCS, Azure and the memory store say of a key that is not there. Any other 404 (a proxy's, a wrong address's, a
#: missing bucket's) must not pass for "unknown key": the caller would take a claim or a checkpoint for absent.
_UNKNOWN_KEY = ("<Code>NoSuchKey</Code>", "<Code>BlobNotFound</Code>", "No data in memory found")
#: A server's answer, obstore's own, and Azurite's for an empty value.
_BEYOND_END = ("416 Range Not Satisfiable", "<Code>InvalidRange</Code>", "Wanted range starting at", '"bytes 0--1/0"')
#: S3 answers so when a write to the same key is under way: nothing is decided yet, the same request may be made again.
_UNDECIDED = "<Code>ConditionalRequestConflict</Code>"

_FULL = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity", "AccountLimitExceeded"})
_REJECTED = frozenset({"NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "ExpiredToken", "PermanentRedirect"})
#: Status 400, and yet a slow or broken connection, or the server's own trouble.
_PASSING = frozenset({"RequestTimeout", "IncompleteBody", "BadDigest", "InternalError", "SlowDown", "ServerBusy"})
_REJECTED_TYPES = frozenset({"PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "InvalidPathError"})

_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]+)")
_STATUS = re.compile(r"status code: (\d{3})")
_URL = re.compile(r"\w+://\S+")

SENTENCE_CHARS_MAX = 200


def is_unknown_key(error: Exception) -> bool:
    """Did the store itself say that this key does not exist?"""
    return isinstance(error, FileNotFoundError) and any(text in str(error) for text in _UNKNOWN_KEY)


def is_beyond_end(error: Exception) -> bool:
    """Did a range start at or after the end of the value?"""
    return any(text in str(error) for text in _BEYOND_END)


def is_undecided(error: Exception) -> bool:
    """Did a conditional write meet another one that is still under way?"""
    return _UNDECIDED in str(error)


def translate(error: Exception, what: str) -> StoreError:
    """The error of ours that says what the caller may do next."""
    text = str(error).partition("\n\nDebug source")[0]
    code = _found(_CODE, text)
    status = int(_found(_STATUS, text) or 0)
    sentence = f"{what}: {_reason(text, code)}"
    if code in _FULL or status == 507:
        return StoreFull(sentence, hint="Free some space in the bucket or raise its quota; it is tried again.")
    if code in _PASSING or status in {408, 409, 412, 429}:
        return StoreUnavailable(sentence)
    if code in _REJECTED or type(error).__name__ in _REJECTED_TYPES or (400 <= status < 500 and status != 404):
        return StoreRejected(sentence, hint="Check the bucket's name, the region, the endpoint and the credentials.")
    return StoreUnavailable(sentence, hint="The store does not answer as it should; it is tried again.")


def _reason(text: str, code: str) -> str:
    """One short line. Addresses are cut out: an Azure one may carry a signature, an endpoint a password."""
    first_line = _URL.sub("…", text.split("\n", 1)[0])
    reason = f"{code}: {_found(_MESSAGE, text)}" if code else first_line.rpartition(" - ")[2]
    return reason.strip().rstrip(".:")[:SENTENCE_CHARS_MAX] + "."


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match.group(1) if match else ""
