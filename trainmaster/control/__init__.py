"""Loops that call the core between port calls."""
