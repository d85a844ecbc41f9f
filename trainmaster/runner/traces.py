"""What does the end of a log say about why a script failed?"""

from __future__ import annotations

_START = b"Traceback (most recent call last):"
_MEMORY_WORDS = (b"MemoryError", b"CUDA out of memory", b"OutOfMemoryError", b"can't allocate memory", b"Cannot allocate memory")
_TRACE_BYTES_MAX = 8 << 10


def last_traceback(tail: bytes) -> str:
    """The last Python traceback in the end of a log, or nothing."""
    start = tail.rfind(_START)
    if start < 0:
        return ""
    lines = tail[start : start + _TRACE_BYTES_MAX].splitlines()
    kept = [lines[0]]
    for line in lines[1:]:
        kept.append(line)
        if line and not line.startswith((b" ", b"\t")):
            break  # the line that names the exception ends the traceback
    return b"\n".join(kept).decode(errors="replace")


def ends_with_traceback(tail: bytes) -> bool:
    """Whether a traceback is the last thing in a log: nobody caught the exception."""
    last = last_traceback(tail).encode()
    return bool(last) and tail.rstrip().endswith(last.rstrip())


def memory_words(traceback: str) -> str:
    """The last line of a traceback that speaks of memory, or nothing."""
    last = traceback.encode().splitlines()[-1] if traceback else b""
    return last.decode(errors="replace")[:300] if any(word in last for word in _MEMORY_WORDS) else ""
