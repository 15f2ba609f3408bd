"""Binder's steps, here: what it installs is pinned alike, its build leaves nothing behind, and its server launches ranks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from benchmarks.binder import lab, said

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = (
    "binder",
    "ddpnb",
    "notebooks",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".gitignore",
    "tests/constraints.txt",
)
LAUNCH = """
import ddpnb
with ddpnb.launch(2, quiet=True) as world:
    print(world.run(lambda: __import__("os").environ["RANK"], stream=None).wait().results)
"""


def lines(path: Path) -> list[str]:
    """What pip reads of it."""
    texts = (re.sub(r"(^|\s)#.*", "", line).strip() for line in path.read_text().splitlines())
    return [text for text in texts if text]


def pins() -> dict[str, Version]:
    found = map(Requirement, lines(ROOT / "tests" / "constraints.txt"))
    return {canonicalize_name(one.name): Version(next(iter(one.specifier)).version) for one in found}


def test_constraints_pin_what_the_project_needs():
    for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]:
        needed = Requirement(text)
        pinned = pins().get(canonicalize_name(needed.name))
        assert pinned is None or needed.specifier.contains(pinned), f"{text}: pinned is {pinned}"
    missing = [text for text in PROJECT["dependencies"] if canonicalize_name(Requirement(text).name) not in pins()]
    assert not missing


def test_requirements_are_the_cpu_build_of_what_is_tested():
    options = [line for line in lines(BINDER / "requirements.txt") if line.startswith("-")]
    named = [Requirement(line) for line in lines(BINDER / "requirements.txt") if not line.startswith("-")]
    assert [one.name for one in named] == ["torch"]
    pinned = Version(next(iter(named[0].specifier)).version)
    assert (pinned.local, Version(pinned.public)) == ("cpu", pins()["torch"])
    assert pinned.public == Version(version("torch")).public, "what is tested here is another torch"
    assert options == ["--extra-index-url https://download.pytorch.org/whl/cpu", "-c ../tests/constraints.txt", "-e ."]
    assert (BINDER / "../tests/constraints.txt").is_file()  # pip looks for it beside the file that names it


def test_python_is_one_that_the_project_takes():
    wanted = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")
    assert Requirement(f"x{PROJECT['requires-python']}").specifier.contains(wanted)


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_scripts_can_be_run(name):
    assert os.access(BINDER / name, os.X_OK)
    assert (BINDER / name).read_text().startswith("#!/bin/bash\n")


def test_start_hands_over():
    done = subprocess.run(
        [BINDER / "start", "sh", "-c", "echo $0 $OMP_NUM_THREADS $1", "x", "a b"],
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    assert done.stdout == "x 1 a b\n"


@pytest.mark.full
def test_build_leaves_the_repository_as_it_was(tmp_path):
    copy, home = tmp_path / "repository", tmp_path / "home"
    for name in NEEDED:
        there, here = copy / name, ROOT / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir():
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        else:
            shutil.copy2(here, there)
    home.mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG", "GIT_"))}
    environment = {**inherited, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def do(*command: str) -> str:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    do("git", "init", "-q")
    do("git", "add", "-A")
    do("./binder/postBuild")
    assert not do("git", "diff", "--name-only")
    assert not do("git", "ls-files", "--others", "--exclude-standard")
    assert list(home.glob(".jupyter/lab/user-settings/*/apputils-extension/notification.jupyterlab-settings"))


@pytest.mark.full
@pytest.mark.world
def test_server_opens_and_a_kernel_of_it_launches_ranks():
    with lab() as server:
        assert b"JupyterLab" in server.ask("lab/tree/notebooks/tour.ipynb")
        with server.kernel() as kernel:
            assert said(kernel, LAUNCH).strip() == "['0', '1']"
        family = server.family()
    left = psutil.wait_procs(family, timeout=10)[1]
    assert not left
