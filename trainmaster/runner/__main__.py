"""Starts the runner: `python -m trainmaster.runner <allocation folder>`."""

from trainmaster.runner.main import main

if __name__ == "__main__":
    main()
