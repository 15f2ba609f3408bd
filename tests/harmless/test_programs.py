"""Healthy programs under ddpnb do what they do by torchrun: the same numbers to the last bit, lines and status, and no finding."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.harmless.comparing import PROGRAMS, Program, difference

OTHER_USER = "other_user"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != OTHER_USER)
BOTH = ("debugged", "seen", "training")  # these are run both ways; others behind the prefix, or by `ddpnb run -n 2`
BY_RUN = ("calls", "groups")
pytestmark = [pytest.mark.full, pytest.mark.world, pytest.mark.timeout(700)]


def assert_same(program, *ways):
    plain = program.by_torchrun()
    assert plain.status == 0, (program.said, plain.lines)
    assert sorted(plain.lines) == ["0", "1"] and all(plain.lines.values())
    for way in ways:
        outcome = way()
        assert (difference(plain, outcome), program.errors) == ("", []), program.said


@pytest.mark.parametrize("name", NAMES)
def test_a_program(tmp_path, name):
    program = Program(tmp_path, str(PROGRAMS / f"{name}.py"), "argument")
    ways = [program.under_run] * (name in (*BOTH, *BY_RUN)) + [program.under_prefix] * (name not in BY_RUN)
    assert_same(program, *ways)


def test_ranks_that_become_another_user(tmp_path):
    """They cannot write the records of root, which ddpnb says; all else is as by torchrun."""
    program = Program(tmp_path, str(PROGRAMS / f"{OTHER_USER}.py"))
    plain = program.by_torchrun()
    assert plain.status == 0 and sorted(plain.lines) == ["0", "1"]
    for way in (program.under_run, program.under_prefix):
        different = difference(plain, way()).splitlines()
        assert program.errors == []
        assert all(": ddpnb: " in line and "are not compared on this rank" in line for line in different), different


@pytest.mark.parametrize(
    "options",
    [["-I"], ["-S"], ["-O"], ["-W", "error"]],
    ids=["isolated", "without site", "optimized", "warnings as errors"],
)
def test_options_of_python(tmp_path, options):
    """Of the first two the recorder does not come into the ranks at all, which is said."""
    script = tmp_path / "training.py"
    packages = [path for path in sys.path if path.endswith("site-packages")]
    script.write_text(f"import sys; sys.path += {packages}\n{(PROGRAMS / 'training.py').read_text()}")
    program = Program(tmp_path, *options, str(script))
    assert_same(program, program.under_prefix)


@pytest.mark.parametrize("folder", ["a name, ü, ☃, 'q' \"Q\" $HOME %s {0}", "two\nlines", "/".join(["long" * 50] * 6)])
def test_a_folder_of_any_name(tmp_path, folder):
    place = tmp_path / folder
    place.mkdir(parents=True)
    shutil.copy(PROGRAMS / "training.py", place / "my training.py")
    program = Program(place, "my training.py", "an argument", "")
    assert_same(program, program.under_run)


def test_what_was_pickled_is_read_without_ddpnb(tmp_path):
    script, shown = str(PROGRAMS / "pickled.py"), []
    for way in ("by_torchrun", "under_run"):
        program = Program(tmp_path / way, script)
        program.folder.mkdir()
        assert getattr(program, way)().status == 0, program.said
        read = subprocess.run(
            [sys.executable, script, "rank1", "read"],
            cwd=program.folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert read.returncode == 0, read.stderr
        shown.append(read.stdout)
    assert shown[0].count("all_reduce") == 2 and shown[1] == shown[0]
