"""How a script's end is described: whatever it raises, there is an ending that can be written."""

from __future__ import annotations

import builtins
import json
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from ddpnb.recorder import rank
from ddpnb.recorder.holds.release import Release
from ddpnb.recorder.process import script


class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")


class Worse(Exception):
    def __str__(self):
        raise KeyboardInterrupt

    __repr__ = __str__


class NoText:
    def __str__(self):
        raise RuntimeError("no text")


class Odd(int):
    def _never(self, *_):
        raise RuntimeError

    __and__ = __lt__ = __le__ = __index__ = __int__ = __bool__ = _never


class NoCode(SystemExit):
    @property
    def code(self):
        raise RuntimeError("no code")


def ended(monkeypatch, error):
    def main():
        raise error

    # The description of threads and locals is not what is tested here: a release needs no door for this.
    release = object.__new__(Release)
    monkeypatch.setattr(Release, "inside", lambda _self: __import__("contextlib").nullcontext())
    monkeypatch.setattr(Release, "convert", lambda _self, error: error)
    return json.loads(json.dumps(script.run(main, release).ending))


@pytest.mark.parametrize("error", [Mute(), Worse(), Mute(Worse())], ids=["mute", "interrupts", "nested"])
def test_an_exception_without_a_text(monkeypatch, capfd, error):
    ending = ended(monkeypatch, error)
    assert (ending["how"], ending["code"], ending["exception"]) == ("raised", 1, type(error).__name__)
    assert ending["message"].startswith("<") and ending["frames"][-1]["function"] == "main"
    assert type(error).__name__ in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SystemExit(NoText()), 1),
        (SystemExit(object), 1),
        (SystemExit(object()), 1),
        (SystemExit(True), 1),
        (SystemExit(-1), 255),
        (NoCode(), 1),
        (SystemExit(Mock(spec=int)), 1),
        (SystemExit(Mock(spec=str)), 1),
        (SystemExit(Odd(3)), 3),
        (SystemExit(2**64), 255),
        (SystemExit(-(2**64)), 255),
        (SystemExit(2**63 - 1), 255),
        (SystemExit(-(2**63)), 0),
    ],
)
def test_an_exit_with_anything(monkeypatch, error, code):
    ending = ended(monkeypatch, error)
    assert (ending["how"], ending["code"]) == ("exited", code)


def test_an_exception_that_cannot_be_described(monkeypatch):
    monkeypatch.setattr(script, "_describe", lambda _: 1 / 0)
    ending = ended(monkeypatch, KeyError("x"))
    assert (ending["how"], ending["exception"]) == ("raised", "KeyError")
    assert "in main\n" in ending["traceback"]


def test_an_ending_that_cannot_be_encoded_is_written_all_the_same(tmp_path):
    path = tmp_path / "ending.json"
    rank._write({"how": "raised", "code": 1, "at_ns": 5, "message": object()}, str(path))
    assert json.loads(path.read_text()) == {"how": "raised", "code": 1, "at_ns": 5}
    assert not list(tmp_path.glob("*.part"))


RELEASE = SimpleNamespace(inside=nullcontext, convert_last=lambda error: error)


def test_builtins_that_a_script_or_cell_replaces_stay(monkeypatch):
    """As torchvision's ``setup_for_distributed`` does: a later cell calls ``print(x, force=True)``."""
    monkeypatch.setattr(builtins, "print", print)  # puts it back
    printed = []

    def main():
        builtins.print = lambda *values, force=False, **_: printed.append((*values, force))

    def later():
        print("loss", force=True)

    for code in (main, later):
        assert script.run(code, RELEASE).ending["how"] == "finished"
    assert printed == [("loss", True)]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit("broken")], ids=["raises", "exits"])
def test_an_ending_is_described_with_pythons_builtins(error):
    before = dict(vars(builtins))

    def main():
        builtins.len = builtins.isinstance = builtins.str = builtins.print = builtins.next = builtins.sum = None
        raise error

    try:
        ended = script.run(main, RELEASE)
        kept = [before[name] is not value for name, value in builtins.__dict__.items() if name in before]
    finally:
        builtins.__dict__.update(before)
    assert (ended.ending["message"], ended.ending["frames"][-1]["function"], sum(kept)) == ("broken", "main", 6)


def test_a_cell_with_anything_on_the_import_path(monkeypatch, tmp_path, capsys):
    """Python skips what is no text."""
    path = tmp_path / "cell.py"
    path.write_text("import sys; sys.path[:0] = [None, 3]")
    monkeypatch.setattr(script.sys, "path", [*script.sys.path])
    namespace = {}
    for _ in range(2):
        assert script.run(script.cell(str(path), namespace), RELEASE).ending["how"] == "finished", (
            capsys.readouterr().err
        )


@pytest.mark.parametrize("error", [RecursionError("deep"), SystemExit("deep")], ids=["raises", "exits"])
def test_of_a_deep_traceback_only_the_last_frames_are_described(monkeypatch, error):
    described = []
    monkeypatch.setattr(script, "describe_locals", lambda frame, **given: described.append(given["within"]) or {})

    def main(depth=500):
        if not depth:
            raise error
        main(depth - 1)

    ending = script.run(main, RELEASE).ending
    assert len(ending["frames"]) == len(described) == 64
    assert len(set(described)) == 1  # all of them have one time together
    assert [frame["function"] for frame in ending["frames"]] == ["main"] * 64
    assert ending["frames"][-1]["line"] < ending["frames"][0]["line"]


def test_an_exception_whose_class_lies_is_described():
    """It is asked whether it is a release."""

    class Lies(Exception):
        @property
        def __class__(self):
            raise RuntimeError

    def main():
        raise Lies

    release = SimpleNamespace(inside=nullcontext, convert_last=lambda error: isinstance(error, OSError))
    assert script.run(main, release).ending["exception"] == "Lies"
