"""What of a command is varied, and what a probe then runs."""

from __future__ import annotations

import ast

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.source.options import options_of
from ddpnb.studies.bisection.command import CommandSpace, Request
from ddpnb.studies.bisection.command_line import replaced
from ddpnb.studies.bisection.space import Probe, SetSpace
from ddpnb.studies.bisection.varied import Trying


def space_of(command, declared=(), commits=(), **more):
    return CommandSpace(Request(tuple(command), **more), declared, commits)


def minimal(space, names):
    return [one.to_json() for one in space.space.shown(names)]


COMMAND = ["train.py", "--amp", "--num-workers", "4", "--lr=0.1", "model.depth=8", "-v"]


@pytest.mark.parametrize(
    ("command", "vary", "last"),
    [
        (["train.py", "--amp"], "b=1|64", ["-b", "1"]),
        (["train.py", "--amp"], "batch=1|64", ["--batch", "1"]),
        (["train.py", "model=big"], "batch=1|64", ["batch=1"]),
        (["train.py", "--amp"], "data.batch=1|64", ["data.batch=1"]),
        (["train.py", "--amp"], "batch=|64", ["--amp"]),
    ],
)
def test_an_option_that_is_added_is_spelt_as_the_others(command, vary, last):
    assert list(space_of(command, vary=[vary]).trying(Probe()).command[-len(last) :]) == last


def test_an_option_that_stands_twice_is_left_out_twice():
    command = ["train.py", "--tag", "a", "--amp", "--tag=b", "data/"]
    space = space_of(command, vary=["tag", "amp"])
    assert space.trying(space.space.start).command == tuple(command)
    assert space.trying(Probe(("--amp",))).command == ("train.py", "--amp", "data/")
    assert replaced(command, "--tag", "c") == ["train.py", "--amp", "--tag=c", "data/"]


def test_an_option_with_several_values_is_left_out_with_all_of_them():
    command = ["train.py", "--schedule", "1", "2", "-5", "--amp"]
    declared = tuple(options_of(ast.parse('p.add_argument("--schedule", nargs="+", type=int)')))
    space = space_of(command, declared=declared)
    assert space.trying(Probe(("--amp",))).command == ("train.py", "--amp")
    assert minimal(space, ["--schedule"]) == [{"name": "--schedule", "value": "1 2 -5"}]


@pytest.mark.parametrize(
    ("command", "varied"),
    [
        (["python", "-m", "pkg.train", "--amp"], ["--amp"]),
        (["torchrun", "--nproc-per-node", "2", "-m", "pkg.train", "--amp", "-m", "x"], ["--amp", "-m"]),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py", "--amp"], ["--amp"]),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "train", "--amp"], ["--amp"]),
    ],
)
def test_the_options_of_a_launcher_are_not_varied_unless_named(command, varied):
    assert [one.name for one in space_of(command, script=False).varied] == varied


def test_a_script_without_an_ending_has_the_options_before_a_file_that_has_one():
    assert [one.name for one in space_of(["train", "--amp", "base.py", "--ema"]).varied] == ["--amp", "--ema"]


def test_the_number_of_ranks_of_a_launcher_is_its_own_option():
    command = ["torchrun", "--nproc_per_node=4", "train.py", "--top-n", "3"]
    assert space_of(command, vary=["nproc=1|4"], script=False).trying(Probe()).command[1] == "--nproc_per_node=1"
    with pytest.raises(UsageError, match="how many ranks"):
        space_of(["python", "spawn.py", "--top-n", "3"], vary=["nproc=1|4"], script=False)


def test_flags_and_values():
    space = space_of(COMMAND, vary=["amp", "workers=0|4"])
    assert space.space.start == Probe(("--amp", "--num-workers"))
    assert space.trying(space.space.start).command == tuple(COMMAND)
    assert space.trying(Probe(("--amp",))).command[:4] == ("train.py", "--amp", "--num-workers", "0")
    assert space.trying(Probe(("--num-workers",))).command[:3] == ("train.py", "--num-workers", "4")
    assert minimal(space, ["--num-workers"]) == [{"name": "--num-workers", "value": "4"}]


def test_a_flag_does_not_take_what_follows_it():
    space = space_of(["train.py", "--amp", "data/", "--x"], vary=["x"])
    assert space.trying(Probe()).command == ("train.py", "--amp", "data/")


def test_all_options_of_the_script_are_varied_where_none_is_named():
    space = space_of(["torchrun", "--nproc-per-node", "2", "train.py", "--amp", "--steps", "3"], script=False)
    assert [one.name for one in space.varied] == ["--amp", "--steps"]
    assert space.trying(Probe(("--amp",))).command == ("torchrun", "--nproc-per-node", "2", "train.py", "--amp")


def test_variables_and_own_options():
    space = space_of(["train.py"], vary=["nproc=1|2", "backend=gloo|nccl"], env=["NCCL_P2P_DISABLE=|1"])
    assert space.trying(Probe(("-n",))) == Trying(
        ("train.py",), {"NCCL_P2P_DISABLE": None}, {"-n": "2", "--backend": "gloo"}
    )
    assert space.trying(space.space.start).environment == {"NCCL_P2P_DISABLE": "1"}
    assert space.trying(space.space.start).typed(["-n", "2"]) == "NCCL_P2P_DISABLE=1 ddpnb run -n 2 train.py"
    assert space.trying(Probe()).typed() == "env -u NCCL_P2P_DISABLE ddpnb run train.py"


def test_the_number_of_processes_of_a_launcher_is_its_own_option():
    space = space_of(["torchrun", "--nproc_per_node=2", "train.py"], vary=["nproc-per-node=1|2"], script=False)
    assert space.trying(Probe()).command == ("torchrun", "--nproc_per_node=1", "train.py")
    assert space.trying(Probe()).typed(["--"]) == "ddpnb run -- torchrun --nproc_per_node=1 train.py"


def test_a_range():
    space = space_of(["train.py", "--steps", "9"], span="steps=1..9")
    assert (space.space.kind, space.space.start, space.space.harmless) == ("range", Probe(at=9), Probe(at=1))
    assert space.trying(Probe(at=4)).command == ("train.py", "--steps", "4")


def test_commits():
    space = space_of(["train.py"], commits=["a", "b", "c"])
    assert (space.space.kind, space.trying(Probe(at="b"))) == ("git", Trying(("train.py",), commit="b"))


def test_a_ladder_begins_with_one_process_and_adds_what_belongs_together():
    command = ["train.py", "--seed", "1", "--log-every", "2", "--amp", "--num-workers", "4", "--data", "x"]
    space = space_of(command, size=4, ladder=True)
    assert isinstance(space.space, SetSpace)
    assert [(title, list(added)) for title, added in space.space.rungs] == [
        ("all ranks", ["-n"]),
        ("data", ["--data"]),
        ("data workers", ["--num-workers"]),
        ("precision and compilation", ["--amp"]),
        ("evaluation, logging, checkpoints", ["--log-every"]),
        ("everything", ["--seed"]),
    ]
    assert space.trying(Probe()) == Trying(("train.py",), own={"-n": "1"})
    assert space.space.cumulative()[-1][1] == space.space.start


def test_a_ladder_of_a_launcher_varies_its_number_of_processes():
    space = space_of(
        ["accelerate", "launch", "--num_processes", "2", "t.py", "--amp"], script=False, size=2, ladder=True
    )
    assert space.space.names == ("--num_processes", "--amp")
    assert space.trying(Probe()).command == ("accelerate", "launch", "--num_processes", "1", "t.py")


def test_a_ladder_of_a_command_that_does_not_say_how_many():
    space = space_of(["python", "spawn.py", "--amp"], script=False, size=2, ladder=True)
    assert space.space.names == ("--amp",)


def test_overrides_of_hydra_are_options_too():
    space = space_of(["torchrun", "app.py", "trainer.steps=5", "+model.depth=3", "data/"], script=False)
    assert [one.name for one in space.varied] == ["trainer.steps", "+model.depth"]
    assert space.trying(Probe(("trainer.steps",))).command == ("torchrun", "app.py", "trainer.steps=5", "data/")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"vary": ["momentum"]}, "no option --momentum"),
        ({"vary": ["lr=1"]}, "harmless and a failing value"),
        ({"vary": ["lr=1|1"]}, "harmless and a failing value"),
        ({"vary": ["lr=1|2|3"]}, "harmless and a failing value"),
        ({"vary": ["amp", "--amp"]}, "named twice"),
        ({"env": ["X"]}, "harmless and a failing value"),
        ({"span": "lr=1"}, "two whole numbers"),
        ({"span": "lr=4..1"}, "two whole numbers"),
        ({"span": "lr=a..b"}, "two whole numbers"),
        ({"span": "lr=1..9999999999999"}, "more than"),
        ({"span": "lr=1..4", "vary": ["amp"]}, "different searches"),
        ({"commits": ["a", "b"], "env": ["X=|1"]}, "different searches"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, said):
    with pytest.raises(UsageError, match=said):
        space_of(COMMAND, **arguments)


def test_a_command_without_options_is_refused():
    with pytest.raises(UsageError, match="no options to vary"):
        space_of(["train.py", "data/"])
