"""Runs in ray's environment: so many jobs, each one CPU, on a running server, `python peer_ray.py ADDRESS SCRIPT JOBS`."""

import sys
import time

from ray.job_submission import JobStatus, JobSubmissionClient


def main(address, script, jobs):
    client = JobSubmissionClient(address)
    waiting = [client.submit_job(entrypoint=f"python {script}", entrypoint_num_cpus=1) for _ in range(jobs)]
    while waiting:
        states = {job: client.get_job_status(job) for job in waiting}
        if JobStatus.FAILED in states.values():
            sys.exit("a job failed")
        waiting = [job for job, state in states.items() if not state.is_terminal()]
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
