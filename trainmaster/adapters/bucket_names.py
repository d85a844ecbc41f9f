"""Under which name does a key lie in a bucket, when servers do not bear every character?

obstore refuses control characters, XML has no U+FFFE and U+FFFF, SeaweedFS turns a backslash into a slash, Azure drops
dots at the end of a part. These (and "~" itself) are written as "~" and two hexadecimal digits per byte; everything else
stays as it is. "~" because it sorts after all letters and digits: a name so written only ever moves back in a server's
order, so that a listing which starts after a plain name never misses one.
"""

from __future__ import annotations

import re

from trainmaster.spec.layout import Key

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\\~\ufffe\uffff]|\.(?=/|$)")
_ESCAPE = re.compile("(?:~[0-9A-F]{2})+")


def to_name(key: str) -> str:
    """The object's name for a key."""
    return _ESCAPED.sub(lambda found: "".join(f"~{byte:02X}" for byte in found.group().encode()), key)


def to_key(name: str) -> Key:
    """The key of an object's name; names that others have written may hold anything."""
    return Key(_ESCAPE.sub(lambda found: bytes.fromhex(found.group().replace("~", "")).decode(errors="replace"), name))


def start_after(prefix: str, after: str) -> str | None:
    """From which name on may a server list, so that nothing below `prefix` and after `after` is missed? None: from all.

    Servers that keep folders (SeaweedFS) sort "a/x" before "a-x", by text it is the other way round; and they skip the
    folder "a" after "a". All agree on a name of letters and digits right below the prefix, such as the numbered chunks of
    a log, once its last character is dropped; the few names before `after` that this lets in are the caller's to drop.
    """
    parent, _, last = after.rpartition("/")
    is_plain = parent == prefix and last.isascii() and last.isalnum()
    return to_name(after[:-1]) if is_plain and len(last) > 1 else None
