"""What frameworks look at to tell a notebook from a program: hidden, and put back."""

from __future__ import annotations

import builtins
import os
import sys

import IPython
import pytest
from IPython.core.interactiveshell import InteractiveShell

from ddpnb.recorder.process.kernel_environment import plain_environment
from ddpnb.recorder.process.notebook import hidden

INLINE = "module://matplotlib_inline.backend_inline"


@pytest.fixture
def shell(monkeypatch):
    """An IPython shell, as an engine has one."""
    monkeypatch.setattr(sys, "displayhook", sys.displayhook)
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    before = dict(vars(builtins))
    shell = InteractiveShell.instance()
    builtins.get_ipython = IPython.get_ipython
    yield shell
    InteractiveShell.clear_instance()
    for name in set(vars(builtins)) - set(before):
        delattr(builtins, name)


def test_a_shell_is_not_there_and_comes_back(shell):
    assert IPython.get_ipython() is shell
    with hidden({}):
        assert IPython.get_ipython() is None
        assert not InteractiveShell.initialized()
        assert not hasattr(sys, "ps1")
        assert not {"get_ipython", "__IPYTHON__", "display"} & set(vars(builtins))
        assert sys.displayhook is sys.__displayhook__
        assert sys.breakpointhook is sys.__breakpointhook__
    assert IPython.get_ipython() is shell
    assert sys.ps1 == "In : "
    assert builtins.__IPYTHON__ is True


def test_a_cell_may_display(shell, capsys):
    with hidden({}, prompt=True):
        assert IPython.get_ipython() is None
        display([1, 2])  # noqa: F821
    assert capsys.readouterr().out == "[1, 2]\n"


def test_everything_comes_back_after_an_exception(shell):
    with pytest.raises(ZeroDivisionError), hidden({}):
        1 / 0  # noqa: B018
    assert IPython.get_ipython() is shell


@pytest.mark.parametrize(
    ("before", "now", "seen"),
    [
        ({}, {"FORCE_COLOR": "1", "MPLBACKEND": INLINE}, {}),  # the engine's kernel has set them
        ({"FORCE_COLOR": "1"}, {"FORCE_COLOR": "1"}, {"FORCE_COLOR": "1"}),  # the user, in a terminal
        ({"JPY_PARENT_PID": "7", "FORCE_COLOR": "1"}, {"JPY_PARENT_PID": "7", "FORCE_COLOR": "1"}, {}),  # a notebook
        ({"TERM": "vt100"}, {"TERM": "xterm-color"}, {"TERM": "vt100"}),
        ({}, {"MPLBACKEND": "agg"}, {"MPLBACKEND": "agg"}),  # the user, in a cell
        ({"PAGER": "less"}, {"PAGER": "most"}, {"PAGER": "most"}),
    ],
)
def test_variables_of_a_kernel(monkeypatch, before, now, seen):
    names = ("FORCE_COLOR", "MPLBACKEND", "JPY_PARENT_PID", "TERM", "PAGER")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in now.items():
        monkeypatch.setenv(name, value)
    with hidden(plain_environment(before)):
        assert {name: os.environ[name] for name in names if name in os.environ} == seen
    assert {name: os.environ[name] for name in names if name in os.environ} == now


def test_a_variable_that_the_code_sets_stays(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", INLINE)
    with hidden(plain_environment({})):
        os.environ["MPLBACKEND"] = "agg"
    assert os.environ["MPLBACKEND"] == "agg"
