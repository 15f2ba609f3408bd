"""``import ddpnb`` in a notebook is enough for the magics: the first one that is used loads all."""

from __future__ import annotations

import IPython
import pytest
from IPython.core.interactiveshell import InteractiveShell

import ddpnb
from ddpnb.notebook.magics.commands import DdpMagics


@pytest.fixture
def shell(monkeypatch):
    made = InteractiveShell()
    monkeypatch.setattr(IPython, "get_ipython", lambda: made)
    return made


def test_all_of_them_are_offered():
    assert {*ddpnb._MAGICS.split()} == {name for kind in DdpMagics.magics.values() for name in kind}


def test_nothing_is_loaded_before_one_is_used(shell):
    ddpnb._offer_magics()
    assert shell.magics_manager.lazy_magics["ddp"] == "ddpnb" and "ddpnb" not in shell.extension_manager.loaded
    with pytest.raises(ddpnb.UsageError, match="unrecognized arguments: now"):
        shell.run_line_magic("ddp_status", "now")
    assert "ddpnb" in shell.extension_manager.loaded and shell.find_cell_magic("ddp_rank") is not None


def test_a_rank_is_offered_none(shell, monkeypatch):
    monkeypatch.setenv("DDPNB_FOLDER", "/nowhere")
    ddpnb._offer_magics()
    assert "ddp" not in shell.magics_manager.lazy_magics


def test_without_a_shell_nothing_happens(monkeypatch):
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    ddpnb._offer_magics()
