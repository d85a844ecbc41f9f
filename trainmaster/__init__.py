"""Managed training on machines you own or rent."""
