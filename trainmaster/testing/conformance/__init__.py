"""One suite per port: what an adapter must pass before anybody relies on it."""
