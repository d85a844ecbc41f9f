"""Runs in torchx's environment: one job by its library, with a wait as short as the library allows to ask for."""

import sys

from torchx.runner import get_runner

if __name__ == "__main__":
    with get_runner() as runner:
        app = runner.run_component("utils.python", ["--script", sys.argv[1]], "local_cwd")
        status = runner.wait(app, wait_interval=0.02)
        print(status.state.name)
        sys.exit(status.state.name != "SUCCEEDED")
