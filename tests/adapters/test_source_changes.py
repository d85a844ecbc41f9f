"""Which files of a working folder are new or changed?"""

import os

from trainmaster.adapters.source_changes import changed_since, file_marks


def add(folder, path, text=""):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_new_and_changed_files_are_told_from_old_ones(tmp_path):
    add(tmp_path, "train.py", "1")
    add(tmp_path, "data/old.txt", "old")
    rewritten = add(tmp_path, "data/rewritten.txt", "abc")
    os.utime(rewritten, ns=(1, 1))
    before = file_marks(tmp_path)
    assert changed_since(before, tmp_path) == []

    add(tmp_path, "out/model.bin", "weights")
    add(tmp_path, "data/rewritten.txt", "xyz")
    add(tmp_path, "train.py", "12")
    add(tmp_path, "__pycache__/train.pyc")
    (tmp_path / "latest").symlink_to("out/model.bin")
    os.mkfifo(tmp_path / "pipe")

    assert changed_since(before, tmp_path) == ["data/rewritten.txt", "latest", "out/model.bin", "train.py"]


def test_a_folder_that_is_gone_holds_nothing(tmp_path):
    assert file_marks(tmp_path / "gone") == {}
