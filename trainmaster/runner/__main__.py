"""Starts the runner: `python -m trainmaster.runner <allocation folder> <lock descriptor>`."""

from trainmaster.quick_imports import import_msgspec

if __name__ == "__main__":
    import_msgspec()
    from trainmaster.runner.main import main

    main()
