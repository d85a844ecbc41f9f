"""How is a ray server started and ended for a measurement? One of its own, on ports of its own, with two CPUs."""

import contextlib
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from bench import peers
from bench.scene import BenchFailed, Scene, remove, tell


@contextlib.contextmanager
def ray_server(scene: Scene):
    """The address of a new server, or None if ray is not installed. In its own session, so that nobody else's ray is touched."""
    ray = peers.program("ray", "ray")
    if ray is None:
        yield None
        return
    tell("  starting ray")
    dashboard = _free_port()
    # Unix sockets lie below this folder, and their names may only be so long: not in the scratch folder.
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    command = [ray, "start", "--head", "--block", "--num-cpus=2", f"--port={_free_port()}", f"--dashboard-port={dashboard}"]
    command += ["--disable-usage-stats", f"--temp-dir={folder}", "--include-dashboard=true", "--node-ip-address=127.0.0.1"]
    log_file = scene.folder / "ray.log"
    with open(log_file, "wb") as log:
        server = subprocess.Popen(
            list(map(str, command)), env=scene.environ(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_for_port(dashboard, server, log_file)
        yield f"http://127.0.0.1:{dashboard}"
    finally:
        server.terminate()  # with --block it ends what it started
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        remove(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for_port(port: int, server: subprocess.Popen[bytes], log_file: Path) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            time.sleep(2)  # the job agent comes a little after the port
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise BenchFailed(f"the ray server did not start: …{log_file.read_text(errors='replace')[-600:]}")
