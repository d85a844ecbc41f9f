"""What is decided: pure functions over frozen values, no I/O, no clock."""
