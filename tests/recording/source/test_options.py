"""Options that scripts declare, read without running them."""

from __future__ import annotations

import ast

import pytest

from ddpnb.recording.source.options import Option, declared, options_of


def only(text: str) -> Option:
    (option,) = options_of(ast.parse(text))
    return option


@pytest.mark.parametrize(
    ("text", "names", "flag", "default"),
    [
        ('parser.add_argument("--amp", action="store_true")', ("--amp",), True, None),
        ('parser.add_argument("-j", "--workers", type=int, default=4)', ("-j", "--workers"), False, "4"),
        ('parser.add_argument("--lr", default=base / 10)', ("--lr",), False, None),
        ('group.add_argument("--verbose", "-v", action="count", default=0)', ("--verbose", "-v"), True, "0"),
        ('p.add_argument("--amp", action=argparse.BooleanOptionalAction)', ("--amp", "--no-amp"), True, None),
        ('click.option("--amp/--no-amp", default=True)', ("--amp", "--no-amp"), True, "True"),
        ('click.option("--shout", "loud", is_flag=True)', ("--shout",), True, None),
        ('click.option("--name", required=True)', ("--name",), False, None),
    ],
)
def test_one_option(text, names, flag, default):
    option = only(text)
    assert (option.names, option.flag, option.default) == (names, flag, default)
    assert option.required == ("required" in text)


def test_choices_and_several_values():
    assert only('p.add_argument("--net", choices=["resnet", "vit"])').choices == ("resnet", "vit")
    assert only('click.option("--net", type=click.Choice(["a", "b"]))').choices == ("a", "b")
    assert only('p.add_argument("--gpus", nargs="+", type=int)').several
    assert not only('p.add_argument("--gpu", nargs="?")').several


def test_positional_arguments_and_other_calls_are_none():
    assert not list(options_of(ast.parse('p.add_argument("folder"); option(3); add_argument(); print("--amp")')))


def test_of_a_script_and_the_modules_beside_it(tmp_path):
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "__init__.py").write_text('def add(parser): parser.add_argument("--amp")')
    (tmp_path / "common.py").write_text('import train, missing\nparser.add_argument("--steps", default=2)')
    (tmp_path / "train.py").write_text(
        'import torch, common\nfrom settings import add\nparser.add_argument("--steps", default=9)'
    )
    found = declared(str(tmp_path / "train.py"))
    assert [(option.names, option.default) for option in found] == [(("--steps",), "9"), (("--amp",), None)]
    assert found[0].line == 3 and found[0].file.endswith("train.py")


@pytest.mark.parametrize("content", [b"def (", b"\x00\xff\x00", b"# -*- coding: none -*-\n", b"(" * 5000])
def test_what_cannot_be_read_declares_nothing(tmp_path, content):
    (tmp_path / "train.py").write_bytes(content)
    assert declared(str(tmp_path / "train.py")) == ()
    assert declared(str(tmp_path / "missing.py")) == ()
