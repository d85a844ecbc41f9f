"""How does one person use Trainmaster without a server? SQLite, a folder, local machines, the same control loop."""

from trainmaster.embedded.front import submit_job, wait_for
from trainmaster.embedded.opening import opened
from trainmaster.embedded.session import Embedded, Submission, exit_code

__all__ = ["Embedded", "Submission", "exit_code", "opened", "submit_job", "wait_for"]
