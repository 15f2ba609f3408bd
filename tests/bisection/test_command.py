"""What of a command is varied, and what a probe then runs."""

from __future__ import annotations

import ast

import pytest

from ddpnb.bisection.command import CommandSpace, Trying, find, number_of_ranks, replaced, value_of
from ddpnb.bisection.search import Search
from ddpnb.bisection.space import Probe, SetSpace
from ddpnb.errors import UsageError
from ddpnb.render.bisection import conclusion
from ddpnb.source.options import Option, options_of

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
    assert list(CommandSpace(command, vary=[vary]).trying(Probe()).command[-len(last) :]) == last


def test_an_option_that_stands_twice_is_left_out_twice():
    command = ["train.py", "--tag", "a", "--amp", "--tag=b", "data/"]
    space = CommandSpace(command, vary=["tag", "amp"])
    assert space.trying(space.space.start).command == tuple(command)
    assert space.trying(Probe(("--amp",))).command == ("train.py", "--amp", "data/")
    assert replaced(command, "--tag", "c") == ["train.py", "--amp", "--tag=c", "data/"]


def test_an_option_with_several_values_is_left_out_with_all_of_them():
    command = ["train.py", "--schedule", "1", "2", "-5", "--amp"]
    declared = tuple(options_of(ast.parse('p.add_argument("--schedule", nargs="+", type=int)')))
    space = CommandSpace(command, declared=declared)
    assert space.trying(Probe(("--amp",))).command == ("train.py", "--amp")
    assert space.minimal(["--schedule"]) == [{"name": "--schedule", "value": "1 2 -5"}]


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
    assert [one.name for one in CommandSpace(command, own=False).varied] == varied


def test_a_script_without_an_ending_has_the_options_before_a_file_that_has_one():
    assert [one.name for one in CommandSpace(["train", "--amp", "base.py", "--ema"]).varied] == ["--amp", "--ema"]


def test_the_number_of_ranks_of_a_launcher_is_its_own_option():
    command = ["torchrun", "--nproc_per_node=4", "train.py", "--top-n", "3"]
    assert CommandSpace(command, vary=["nproc=1|4"], own=False).trying(Probe()).command[1] == "--nproc_per_node=1"
    with pytest.raises(UsageError, match="how many ranks"):
        CommandSpace(["python", "spawn.py", "--top-n", "3"], vary=["nproc=1|4"], own=False)


def test_flags_and_values():
    space = CommandSpace(COMMAND, vary=["amp", "workers=0|4"])
    assert space.space.start == Probe(("--amp", "--num-workers"))
    assert space.trying(space.space.start).command == tuple(COMMAND)
    assert space.trying(Probe(("--amp",))).command[:4] == ("train.py", "--amp", "--num-workers", "0")
    assert space.trying(Probe(("--num-workers",))).command[:3] == ("train.py", "--num-workers", "4")
    assert space.minimal(["--num-workers"]) == [{"name": "--num-workers", "value": "4"}]


def test_a_flag_does_not_take_what_follows_it():
    space = CommandSpace(["train.py", "--amp", "data/", "--x"], vary=["x"])
    assert space.trying(Probe()).command == ("train.py", "--amp", "data/")


def test_all_options_of_the_script_are_varied_where_none_is_named():
    space = CommandSpace(["torchrun", "--nproc-per-node", "2", "train.py", "--amp", "--steps", "3"], own=False)
    assert [one.name for one in space.varied] == ["--amp", "--steps"]
    assert space.trying(Probe(("--amp",))).command == ("torchrun", "--nproc-per-node", "2", "train.py", "--amp")


def test_several_values_are_tried_in_their_order():
    space = CommandSpace(COMMAND, vary=["amp", "workers=0|2|4"], env=["X=|1|2"])
    assert [str(one) for one in space.varied] == ["--amp", "--num-workers=2|4", "X=1|2"]
    assert space.trying(space.space.start).command == tuple(COMMAND)
    assert space.trying(space.space.start).environment == {"X": "2"}
    two = space.trying(space.space.probe(["--num-workers=2"]))
    assert two.command[1:3] == ("--num-workers", "2")
    assert two.environment == {"X": None}
    four = space.space.probe(["--num-workers=4"])
    assert space.trying(four).command[1:3] == ("--num-workers", "4")
    assert space.minimal(four.on) == [{"name": "--num-workers", "value": "4"}]
    assert space.minimal(["--num-workers=2"]) == [{"name": "--num-workers", "value": "2"}]


def test_several_values_of_what_a_ladder_adds():
    space = CommandSpace(COMMAND, vary=["amp", "workers=0|2|4", "nproc=1|2|4"], ladder=4)
    assert isinstance(space.space, SetSpace)
    assert space.space.rungs[1] == ("data workers", ("--num-workers=2", "--num-workers=4"))


@pytest.mark.parametrize("least", [1, 2, 4, 8])
def test_of_several_values_the_first_that_fails_is_found(least):
    space = CommandSpace(["train.py", "--w", "8", "--amp", "--ema"], vary=["w=0|1|2|4|8", "amp", "ema"])
    search = Search(space.space)
    while (probe := search.next_probe()) is not None:
        command = space.trying(probe).command
        search.answer(
            probe, "bad" if int(command[command.index("--w") + 1]) >= least and "--amp" in command else "good"
        )
    assert search.result is not None
    assert space.minimal(search.result.minimal) == [
        {"name": "--w", "value": str(least)},
        {"name": "--amp", "value": ""},
    ]
    assert (
        conclusion(search.result, search)
        == f"It fails with --w={least} and --amp together.\nIt works with the others: --ema."
    )
    assert len(search.trials) <= 13
    assert Search.from_json(search.to_json()).result == search.result


def test_variables_and_own_options():
    space = CommandSpace(["train.py"], vary=["nproc=1|2", "backend=gloo|nccl"], env=["NCCL_P2P_DISABLE=|1"])
    assert space.trying(Probe(("-n",))) == Trying(
        ("train.py",), {"NCCL_P2P_DISABLE": None}, {"-n": "2", "--backend": "gloo"}
    )
    assert space.trying(space.space.start).environment == {"NCCL_P2P_DISABLE": "1"}
    assert space.typed(space.trying(space.space.start), ["-n", "2"]) == "NCCL_P2P_DISABLE=1 ddpnb run -n 2 train.py"
    assert space.typed(space.trying(Probe()), []) == "env -u NCCL_P2P_DISABLE ddpnb run train.py"


def test_the_number_of_processes_of_a_launcher_is_its_own_option():
    space = CommandSpace(["torchrun", "--nproc_per_node=2", "train.py"], vary=["nproc-per-node=1|2"], own=False)
    assert space.trying(Probe()).command == ("torchrun", "--nproc_per_node=1", "train.py")
    assert space.typed(space.trying(Probe())) == "ddpnb run -- torchrun --nproc_per_node=1 train.py"


def test_a_range():
    space = CommandSpace(["train.py", "--steps", "9"], span="steps=1..9")
    assert (space.kind, space.space.start, space.space.harmless) == ("range", Probe(at=9), Probe(at=1))
    assert space.trying(Probe(at=4)).command == ("train.py", "--steps", "4")


def test_commits():
    space = CommandSpace(["train.py"], commits=["a", "b", "c"])
    assert (space.kind, space.trying(Probe(at="b"))) == ("git", Trying(("train.py",), commit="b"))


def test_a_ladder_begins_with_one_process_and_adds_what_belongs_together():
    command = ["train.py", "--seed", "1", "--log-every", "2", "--amp", "--num-workers", "4", "--data", "x"]
    space = CommandSpace(command, ladder=4)
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
    space = CommandSpace(["accelerate", "launch", "--num_processes", "2", "t.py", "--amp"], own=False, ladder=2)
    assert space.space.names == ("--num_processes", "--amp")
    assert space.trying(Probe()).command == ("accelerate", "launch", "--num_processes", "1", "t.py")


def test_a_ladder_of_a_command_that_does_not_say_how_many():
    space = CommandSpace(["python", "spawn.py", "--amp"], own=False, ladder=2)
    assert space.space.names == ("--amp",)


def test_overrides_of_hydra_are_options_too():
    space = CommandSpace(["torchrun", "app.py", "trainer.steps=5", "+model.depth=3", "data/"], own=False)
    assert [one.name for one in space.varied] == ["trainer.steps", "+model.depth"]
    assert space.trying(Probe(("trainer.steps",))).command == ("torchrun", "app.py", "trainer.steps=5", "data/")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"vary": ["momentum"]}, "no option --momentum"),
        ({"vary": ["lr=1"]}, "harmless and a failing value"),
        ({"vary": ["lr=1|1"]}, "harmless and a failing value"),
        ({"vary": ["lr=1|2|1"]}, "harmless and a failing value"),
        ({"vary": ["lr=1||3"]}, "harmless and a failing value"),
        ({"env": ["X=1||3"]}, "harmless and a failing value"),
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
        CommandSpace(COMMAND, **arguments)


def test_a_command_without_options_is_refused():
    with pytest.raises(UsageError, match="no options to vary"):
        CommandSpace(["train.py", "data/"])


# -- what the script declares


def declares(text: str) -> list[Option]:
    return list(options_of(ast.parse(text)))


def proposed(command: list[str], text: str) -> list[tuple[str, str | None, str | None]]:
    return [(one.name, one.failing, one.harmless) for one in CommandSpace(command, declared=declares(text)).varied]


def test_a_flag_before_a_positional_argument_takes_no_value():
    command = ["train.py", "--amp", "data.csv"]
    assert proposed(command, "") == [("--amp", "data.csv", None)]
    assert proposed(command, 'p.add_argument("--amp", action="store_true")') == [("--amp", None, None)]
    space = CommandSpace(command, declared=declares('p.add_argument("--amp", action="store_true")'))
    assert space.trying(Probe()).command == ("train.py", "data.csv")


def test_what_cannot_be_left_out_and_what_would_change_nothing_is_not_proposed():
    text = 'a.add_argument("--data", required=True); a.add_argument("--lr", default=0.1); a.add_argument("--amp")'
    assert proposed(["train.py", "--data", "d", "--lr", "0.1", "--amp", "yes"], text) == [("--amp", "yes", None)]
    with pytest.raises(UsageError, match="requires all options"):
        CommandSpace(["train.py", "--data", "d"], declared=declares(text))


@pytest.mark.parametrize(("default", "harmless"), [("default=8", "0"), ("default=0", None), ("type=int", "0")])
def test_the_harmless_number_of_data_workers(default, harmless):
    text = f'p.add_argument("-j", "--workers", {default})'
    assert proposed(["train.py", "-j", "4"], text) == [("-j", "4", harmless)]


def test_workers_that_the_script_has_by_default_are_suggested():
    text = 'p.add_argument("-j", "--workers", default=8); p.add_argument("--amp", action="store_true")'
    space = CommandSpace(["train.py", "--amp"], declared=declares(text))
    assert [str(one) for one in space.suggested()] == ["--workers=8"]
    assert CommandSpace(["train.py", "--amp", "-j", "2"], declared=declares(text)).suggested() == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("torchrun --nproc-per-node 4 train.py", 4),
        ("torchrun --nproc_per_node=8 train.py", 8),
        ("mpirun -np 3 python train.py", 3),
        ("torchrun --nproc-per-node gpu train.py", None),
        ("python train.py", None),
    ],
)
def test_how_many_ranks_a_launch_command_starts(command, said):
    assert number_of_ranks(command.split()) == said
