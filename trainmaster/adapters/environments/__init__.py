"""Environments: resolved, built once on a machine, kept there for all its jobs."""
