"""Model and output lie under keys without an attempt: they are written inside the attempt lease only."""

from __future__ import annotations

import pytest

from trainmaster.adapters.object_store import open_store
from trainmaster.errors import StoreError
from trainmaster.runner.workplace import upload
from trainmaster.spec.layout import Key


def test_nothing_is_uploaded_after_the_lease(tmp_path):
    store = open_store(str(tmp_path / "store"))
    pairs = [(Key(f"jobs/j/model/{name}"), tmp_path / name) for name in "abc"]
    for _, path in pairs:
        path.write_text("mine")
    answers = iter([True, False])
    with pytest.raises(StoreError, match="lease"):
        upload(pairs, store, lambda _: None, lambda: next(answers))
    assert [entry.key for entry in store.list_keys(Key("jobs"))] == ["jobs/j/model/a"]
    upload(pairs, store, lambda _: None, lambda: True)
    assert len(list(store.list_keys(Key("jobs")))) == 3
