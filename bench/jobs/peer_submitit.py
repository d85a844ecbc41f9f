"""Runs in submitit's environment: so many jobs on so many slots, `python peer_submitit.py FOLDER JOBS SLOTS`.

submitit's local executor has no slots of its own: with 0 all jobs are started at once, otherwise so many threads each submit a
job and wait for it.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import submitit


def job():
    print("done")


def main(folder, jobs, slots):
    executor = submitit.LocalExecutor(folder=folder)
    if slots == 0:
        return [j.result() for j in [executor.submit(job) for _ in range(jobs)]]
    with ThreadPoolExecutor(slots) as pool:
        return list(pool.map(lambda _: executor.submit(job).result(), range(jobs)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
