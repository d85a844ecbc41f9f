"""This machine: each allocation is a runner process with a folder of its own."""
