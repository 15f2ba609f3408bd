"""The folders that a script can be chosen from."""

from __future__ import annotations

import os

from ddpnb.notebook import folders


def test_folders_and_scripts_are_listed_and_hidden_ones_are_not(tmp_path):
    for name in ("src", ".git", "__pycache__"):
        (tmp_path / name).mkdir()
    for name in ("train.py", "eval.py", ".hidden.py", "data.csv"):
        (tmp_path / name).touch()
    found = folders.look(str(tmp_path))
    assert (found.path, found.folders, found.scripts) == (str(tmp_path), ("src",), ("eval.py", "train.py"))
    assert folders.look(str(tmp_path / "train.py")) == found
    assert folders.look(f"{tmp_path}/src/..") == found


def test_what_cannot_be_read_says_why(tmp_path):
    assert folders.look(str(tmp_path / "gone")).error == "No such file or directory"
    assert folders.look("a\0b").error


def test_a_large_folder_is_listed_in_part_with_all_its_scripts(tmp_path):
    for number in range(folders.MOST):
        (tmp_path / f"run{number:03}").mkdir()
    (tmp_path / "train.py").touch()
    found = folders.look(str(tmp_path))
    assert (len(found.folders), found.scripts, found.left_out) == (folders.MOST - 1, ("train.py",), 1)


def test_a_loop_of_links_is_no_endless_walk(tmp_path):
    os.symlink(tmp_path, tmp_path / "again")
    assert folders.look(str(tmp_path / "again" / "again")).folders == ("again",)
