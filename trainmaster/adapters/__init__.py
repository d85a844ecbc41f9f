"""The outside world, one adapter per thing."""
