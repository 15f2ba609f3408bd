"""Options and values in a command line."""

from __future__ import annotations

import pytest

from ddpnb.errors import UsageError
from ddpnb.studies.bisection.command_line import find, ranks_option, replaced, value_of

COMMAND = ["train.py", "--amp", "--num-workers", "4", "--lr=0.1", "model.depth=8", "-v"]


@pytest.mark.parametrize(
    ("name", "spelt"),
    [
        ("amp", "--amp"),
        ("--amp", "--amp"),
        ("num_workers", "--num-workers"),
        ("workers", "--num-workers"),
        ("lr", "--lr"),
        ("model.depth", "model.depth"),
        ("v", "-v"),
        ("train.py", None),
        ("momentum", None),
    ],
)
def test_an_option_is_found_however_it_is_written(name, spelt):
    assert find(COMMAND, name) == spelt


def test_an_ending_that_two_options_have_names_neither():
    with pytest.raises(UsageError, match="workers may be --train-workers or --eval-workers"):
        find(["train.py", "--train-workers", "1", "--eval-workers", "2"], "workers")


@pytest.mark.parametrize(("option", "value"), [("--amp", None), ("--num-workers", "4"), ("--lr", "0.1"), ("-v", None)])
def test_the_value_of_an_option(option, value):
    assert value_of(COMMAND, option) == value


@pytest.mark.parametrize("number", ["-1", "-0.5", "-.5", "-1e-5", "-inf"])
def test_a_negative_number_is_a_value(number):
    assert value_of(["train.py", "--shift", number, "--amp"], "--shift") == number


@pytest.mark.parametrize(
    ("option", "value", "changed"),
    [
        ("--num-workers", "0", ["--num-workers", "0"]),
        ("--lr", "0.2", ["--lr=0.2"]),
        ("--num-workers", None, []),
        ("--lr", None, []),
    ],
)
def test_a_value_is_replaced_or_left_out(option, value, changed):
    new = replaced(COMMAND, option, value)
    assert [token for token in new if token not in COMMAND] == [token for token in changed if token not in COMMAND]
    assert (value_of(new, option), option in " ".join(new)) == (value, value is not None)


def test_an_option_that_is_not_there_is_added_at_the_end():
    assert replaced(["train.py", "--amp"], "--steps", "3") == ["train.py", "--amp", "--steps", "3"]
    assert replaced(["train.py"], "trainer.steps", "3") == ["train.py", "trainer.steps=3"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("torchrun --nproc-per-node 4 train.py", ("--nproc-per-node", "4")),
        ("torchrun --nproc_per_node=8 train.py", ("--nproc_per_node", "8")),
        ("mpirun -np 3 python train.py", ("-np", "3")),
        ("torchrun --nproc-per-node gpu train.py", ("--nproc-per-node", "gpu")),
        ("python train.py", None),
    ],
)
def test_how_many_ranks_a_launch_command_starts(command, said):
    assert ranks_option(command.split()) == said
