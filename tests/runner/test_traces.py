"""What does the end of a log say? Only a traceback that nobody caught is the last word."""

from __future__ import annotations

import pytest

from trainmaster.runner.traces import ends_with_traceback

TRACE = b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nOSError: [Errno 28] No space left on device\n'


@pytest.mark.parametrize(
    ("tail", "is_last"),
    [
        (TRACE, True),
        (b"step 1\n" + TRACE, True),
        (TRACE + b"caught, goes on\n", False),
        (b"", False),
        (b"fine\n", False),
        (TRACE + TRACE, True),
    ],
)
def test_a_traceback_is_the_last_word_only_at_the_end(tail, is_last):
    assert ends_with_traceback(tail) is is_last
