"""Data of jobs: found at an address, fetched once, kept in a cache that jobs share."""
