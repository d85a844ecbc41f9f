"""A rented fleet that exists only here: machines that come late, vanish and answer badly."""
