"""What the programs of the matrix say of themselves, and docs/frameworks.md of their versions. Starts no rank."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddpnb.rules.finding_types import type_of
from tests.matrix.program import PROGRAMS, programs

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "frameworks.md").read_text()


def test_each_folder_has_a_healthy_and_a_broken_program():
    names = sorted(folder.name for folder in PROGRAMS.iterdir() if folder.is_dir())
    assert (
        names == [program.name for program in programs("healthy")] == [program.name for program in programs("broken")]
    )


@pytest.mark.parametrize("program", programs("broken"), ids=lambda program: program.name)
def test_a_broken_program_states_what_it_must_give(program):
    assert type_of(program.expect).code == program.expect
    assert bool(program.culprits) != bool(program.sides)
    assert program.lines
    assert program.plain == "hang" or program.plain.isdigit()
    assert set(program.outcome.split(" or ")) <= {"ok", "hang", "crash", "divergence"}
    assert program.remedy in PAGE
    assert program.expect in PAGE


@pytest.mark.parametrize(
    "package",
    [
        "accelerate",
        "hydra-core",
        "lightning",
        "timm",
        "torch-geometric",
        "torchft-nightly",
        "torchvision",
        "transformers",
    ],
)
def test_the_page_names_the_versions_that_are_installed(package):
    pins = (HERE / "constraints.txt").read_text()
    version = re.search(rf"^{package}==(\S+)$", pins, re.MULTILINE)
    assert version is not None
    assert f"| {version[1]} |" in PAGE
