"""Does every database keep the promises of the port?"""

from __future__ import annotations

import pytest

from trainmaster.adapters.databases.sqlite import SqliteDatabase
from trainmaster.testing.conformance.database import DatabaseConformance
from trainmaster.testing.sim_database import DirectDatabase, Tables


class TestSqlite(DatabaseConformance):
    @pytest.fixture
    def open_database(self, tmp_path):
        return lambda: SqliteDatabase.open(tmp_path / "a folder" / "trainmaster.db")


class TestSimulated(DatabaseConformance):
    """The one that simulated worlds use."""

    @pytest.fixture
    def open_database(self):
        database = DirectDatabase(Tables())
        return lambda: database
