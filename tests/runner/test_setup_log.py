"""Is the log of the set-up kept within bounds, its end above all?"""

from __future__ import annotations

import threading

from trainmaster.runner.environment import SetUpLog

LINE = f"{'x' * 1023}\n"


def test_nothing_was_said(tmp_path):
    assert SetUpLog(tmp_path / "log").read() == b""


def test_little_is_kept_as_it_is(tmp_path):
    log = SetUpLog(tmp_path / "log")
    log.write("one\n")
    log.write("tw\udcff\n")
    assert log.read() == b"one\ntw?\n"


def test_of_much_the_end_is_kept_and_the_disk_is_not_filled(tmp_path):
    log = SetUpLog(tmp_path / "log")
    sizes = set()
    for number in range(20_000):
        log.write(f"{number} {LINE}")
        sizes.add(sum(path.stat().st_size for path in tmp_path.iterdir()))
    assert max(sizes) < 13 << 20
    kept = log.read()
    assert 3 << 20 < len(kept) <= 4 << 20
    numbers = [int(line.split()[0]) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], 20_000))


def test_several_write_at_once(tmp_path):
    log = SetUpLog(tmp_path / "log")

    def write():
        for _ in range(6000):
            log.write(LINE)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(log.read().splitlines(keepends=True)) == {LINE.encode()}
