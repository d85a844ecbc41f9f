"""What data did a job read? Manifests and their hashes, the share of each machine, and how the data of two attempts differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct

#: More than this is counted and hashed, but not listed in a manifest.
LISTED_MAX = 200_000
#: A file system bears no longer name.
NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 3_000


class InputObject(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a channel."""

    #: below the channel's folder, "/"-separated
    path: str
    size_bytes: int
    #: what changes with its content: etag or version in a bucket, time of the last change on a disk, a hash
    version: str = ""


class InputManifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """inputs/<channel>.json: what an attempt read, all its machines together."""

    v: int = 1
    channel: str
    uri: str
    #: each machine read everything, or its share: `share` says which
    distribution: str = "replicated"
    nodes: int = 1
    files: int
    size_bytes: int
    hash: str
    #: in order of path
    objects: list[InputObject] = []
    #: how many are not listed: there are too many
    unlisted: int = 0


class InputSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest in one line, for the record."""

    uri: str
    files: int
    size_bytes: int
    #: over path, size and version of every file: equal when the data are
    hash: str
    #: what the user should know about these data: they changed
    warning: str = ""


def make_manifest(
    channel: str,
    uri: str,
    objects: Iterable[InputObject],
    *,
    distribution: str = "replicated",
    nodes: int = 1,
    listed_max: int = LISTED_MAX,
) -> InputManifest:
    """The manifest of what was found at an address."""
    ordered = sorted(objects, key=lambda one: one.path)
    hasher = hashlib.sha256()
    for one in ordered:
        hasher.update(f"{one.path}\0{one.size_bytes}\0{one.version}\n".encode(errors="surrogatepass"))
    return InputManifest(
        channel=channel,
        uri=uri,
        distribution=distribution,
        nodes=nodes,
        files=len(ordered),
        size_bytes=sum(one.size_bytes for one in ordered),
        hash=hasher.hexdigest(),
        objects=ordered[:listed_max],
        unlisted=max(0, len(ordered) - listed_max),
    )


def summarize(manifest: InputManifest, warning: str = "") -> InputSummary:
    """A manifest in one line."""
    return InputSummary(uri=manifest.uri, files=manifest.files, size_bytes=manifest.size_bytes, hash=manifest.hash, warning=warning)


def share(paths: Iterable[str], node: int, nodes: int) -> list[str]:
    """Which files machine `node` of `nodes` gets: every n-th of the sorted list, so that all shares together are everything."""
    if not 0 <= node < nodes:
        raise ValueError(f"there is no machine {node} of {nodes}")
    return sorted(paths)[node::nodes]


def difference(before: InputManifest, after: InputManifest) -> str:
    """How the data differ, in a few words; empty: they do not."""
    if before.hash == after.hash:
        return ""
    old = {one.path: one for one in before.objects}
    new = {one.path: one for one in after.objects}
    added, gone = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    changed = sorted(path for path in new.keys() & old.keys() if new[path] != old[path])
    parts = [
        f"{len(paths)} {word} ({paths[0]}{', …' if len(paths) > 1 else ''})"
        for word, paths in (("changed", changed), ("added", added), ("gone", gone))
        if paths
    ]
    return ", ".join(parts) or f"{before.files} files before, {after.files} now"


def why_no_folder(paths: Sequence[str]) -> str:
    """Why these keys cannot lie as files in one folder; empty: they can."""
    names, folders = set(paths), {""}
    for path in paths:
        around = f"/{path}/"
        if "//" in around or "/./" in around or "/../" in around or "\0" in path:
            return f"the key {path!r} has an empty part, `.`, `..` or a NUL and cannot be a file"
        if len(path) > NAME_BYTES_MAX // 4 and _is_too_long(path):
            return f"the key {path[:60]!r}… is too long for a file name"
        folder = path.rpartition("/")[0]
        while folder not in folders:  # each only once: most have many files
            if folder in names:
                return f"the key {folder!r} is both an object and the folder of {path!r}; a disk cannot hold both"
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return ""


def _is_too_long(path: str) -> bool:
    parts = path.encode(errors="surrogatepass").split(b"/")
    return max(map(len, parts)) > NAME_BYTES_MAX or sum(map(len, parts)) > PATH_BYTES_MAX
