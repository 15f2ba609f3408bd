"""Ranks at one line of the user's that took different ways in the library which it calls."""

from __future__ import annotations

import pytest

from ddpnb.recording.calls import CallState
from ddpnb.recording.stacks import Frame
from tests.rules.recordings import TORCH_FRAME, Rank, diagnose, line, record

FIT = line(12)
TRAINER = "/venv/site-packages/trainer/trainer.py"


def library(number: int, function: str, file: str = TRAINER) -> Frame:
    return Frame(file, number, function, user=False)


def trains(rank: int, world: int, *frames: Frame, dtype: str) -> Rank:
    made = Rank(rank, world).calls("all_reduce", FIT)
    made.calls("all_gather", FIT, dtype=dtype, state=CallState.FENCED)
    return made.has_stack(Frame(FIT.file, FIT.line, FIT.function), *frames, TORCH_FRAME)


ON = (library(5, "train"), library(40, "run_epoch"), library(60, "gather_counts"))
OUT = (library(5, "train"), library(44, "run_epoch"), library(90, "save_state"))


def first(*ranks: Rank):
    return diagnose(record(*ranks)).findings[0]


@pytest.mark.parametrize("world", [2, 3])
def test_a_rank_that_left_the_loop_of_a_library(world):
    ranks = [trains(r, world, *ON, dtype="int64") for r in range(world - 1)]
    found = first(*ranks, trains(world - 1, world, *OUT, dtype="float32"))
    assert (found.code, found.certainty) == ("DDP301", "likely")
    assert found.culprits == ((world - 1,) if world > 2 else ())
    assert f"ank {world - 1} is in save_state(), called by run_epoch() inside {FIT}" in found.summary
    assert f"Rank {world - 1}: {TRAINER}:44 in run_epoch()." in found.evidence


@pytest.mark.parametrize("folder", ["ddpnb", "torch"])
def test_an_environment_in_a_folder_that_is_called_as_a_package(folder):
    trainer = f"/home/me/{folder}/.venv/lib/python3.13/site-packages/trainer/trainer.py"
    ways = [[library(frame.line, frame.function, trainer) for frame in way] for way in (ON, OUT)]
    found = first(trains(0, 2, *ways[0], dtype="int64"), trains(1, 2, *ways[1], dtype="float32"))
    assert f"rank 1 is in save_state(), called by run_epoch() inside {FIT}" in found.summary


@pytest.mark.parametrize(
    "other",
    [
        ON,
        (library(5, "train"), library(41, "run_epoch"), library(60, "gather_counts")),  # the same from another line
        (library(5, "train"), library(40, "step", "/venv/site-packages/trainer/other.py"), library(90, "save_state")),
        (library(5, "train"),),
        (),
        (library(5, "backward", "/venv/torch/_tensor.py"), library(7, "engine", "/venv/torch/autograd/graph.py")),
    ],
    ids=["same way", "same function", "another function before", "less known", "nothing known", "torch alone"],
)  # fmt: skip
def test_otherwise_their_calls_differ(other):
    found = first(trains(0, 2, *ON, dtype="int64"), trains(1, 2, *other, dtype="float32"))
    assert found.code == "DDP304"
