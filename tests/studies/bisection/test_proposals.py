"""What is proposed to be varied, by what the script declares."""

from __future__ import annotations

import ast

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.source.options import Option, options_of
from ddpnb.studies.bisection.proposals import by_name, suggested
from ddpnb.studies.bisection.space import Probe
from ddpnb.studies.bisection.varied import Varied
from tests.studies.bisection.test_command import space_of


def declares(text: str) -> list[Option]:
    return list(options_of(ast.parse(text)))


def proposed(command: list[str], text: str) -> list[tuple[str, str | None, str | None]]:
    return [(one.name, one.failing, one.harmless) for one in space_of(command, declared=declares(text)).varied]


def test_a_flag_before_a_positional_argument_takes_no_value():
    command = ["train.py", "--amp", "data.csv"]
    assert proposed(command, "") == [("--amp", "data.csv", None)]
    assert proposed(command, 'p.add_argument("--amp", action="store_true")') == [("--amp", None, None)]
    space = space_of(command, declared=declares('p.add_argument("--amp", action="store_true")'))
    assert space.trying(Probe()).command == ("train.py", "data.csv")


def test_what_cannot_be_left_out_and_what_would_change_nothing_is_not_proposed():
    text = 'a.add_argument("--data", required=True); a.add_argument("--lr", default=0.1); a.add_argument("--amp")'
    assert proposed(["train.py", "--data", "d", "--lr", "0.1", "--amp", "yes"], text) == [("--amp", "yes", None)]
    with pytest.raises(UsageError, match="requires all options"):
        space_of(["train.py", "--data", "d"], declared=declares(text))


@pytest.mark.parametrize(("default", "harmless"), [("default=8", "0"), ("default=0", None), ("type=int", "0")])
def test_the_harmless_number_of_data_workers(default, harmless):
    text = f'p.add_argument("-j", "--workers", {default})'
    assert proposed(["train.py", "-j", "4"], text) == [("-j", "4", harmless)]


def test_workers_that_the_script_has_by_default_are_suggested():
    text = 'p.add_argument("-j", "--workers", default=8); p.add_argument("--amp", action="store_true")'
    declared = by_name(declares(text))
    assert suggested(["train.py", "--amp"], declared) == [Varied("option", "--workers", "8", "0")]
    assert suggested(["train.py", "--amp", "-j", "2"], declared) == []
