"""Is every answered request heard as it was, however its bytes are cut?"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from trainmaster.testing.chaos.http_ear import HttpEar

PUT = b"PUT /b/claim?x=1 HTTP/1.1\r\nHost: s3\r\nContent-Length: 5\r\n\r\nhello"
GET = b"GET /b/k HTTP/1.1\r\nHost: s3\r\n\r\n"
HEAD = b"HEAD /b/k HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
FULL = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab\r\n\r\n10;x=y\r\n0123456789abcdef\r\n0\r\nTrailer: 1\r\n\r\n"
)
EMPTY_CHUNKED = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
NO_BODY = b"HTTP/1.1 204 No Content\r\n\r\n"
ABOUT = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
WAIT = b"HTTP/1.1 100 Continue\r\n\r\n"


def listen() -> tuple[HttpEar, list]:
    heard: list = []
    clock = iter(range(10_000))
    return HttpEar(lambda: float(next(clock)), heard.append), heard


@pytest.mark.parametrize("seed", range(20))
def test_requests_and_answers_belong_together_however_they_are_cut(seed):
    rng = random.Random(seed)
    ear, heard = listen()
    asked = [(PUT, OK, 200), (GET, FULL, 200), (HEAD, ABOUT, 200), (GET, CHUNKED, 200), (PUT, WAIT + NO_BODY, 204)]
    asked += [(GET, EMPTY_CHUNKED, 404), (PUT, FULL, 200)]
    for request, answer, _ in asked:
        for data, take in ((request, ear.sent), (answer, ear.answered)):
            cuts = sorted({0, len(data), *(rng.randint(0, len(data)) for _ in range(rng.randint(0, 5)))})
            for begin, end in pairwise(cuts):
                take(data[begin:end])
    assert [(e.method, e.status) for e in heard] == [(r.split()[0].decode(), status) for r, _, status in asked]
    assert [e.body for e in heard if e.method == "PUT"] == [b"hello"] * 3
    assert heard[0].target == "/b/claim?x=1"
    assert all(e.sent_s < e.answered_s for e in heard)


def test_what_is_not_answered_is_not_heard():
    ear, heard = listen()
    ear.sent(PUT)
    assert (ear.awaits_answer, ear.is_between_requests, heard) == (True, True, [])
    ear.sent(PUT[:-2])
    assert not ear.is_between_requests
    ear.answered(OK)
    assert (ear.awaits_answer, len(heard)) == (False, 1)
