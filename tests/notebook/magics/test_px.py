"""Whose ``%px`` it is, and which engines it means."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ipyparallel.client.magics import ParallelMagics

from ddpnb.errors import WorldError
from ddpnb.notebook.magics import px
from ddpnb.notebook.magics.px import Px


class Shell:
    """As much of IPython's shell as the magics of ipyparallel touch."""

    def __init__(self):
        self.magics_manager = SimpleNamespace(magics={"line": {}, "cell": {}})

    def register_magics(self, *instances):
        for one in instances:
            for kind, magics in one.magics.items():
                self.magics_manager.magics[kind].update(magics)

    def view(self, name):
        return self.magics_manager.magics["line"][name].__self__.view


class Client:
    _closed = False

    def direct_view(self, targets):
        return SimpleNamespace(client=self, targets=targets, block=False)


class World:
    """A world of two ranks, whose engines came in the other order."""

    size = 2

    def __init__(self):
        self.closed = False
        self.ids = {0: 1, 1: 0}
        engines = SimpleNamespace(client=Client(), engine_id=lambda rank: self.ids[rank])
        self._ranks = SimpleNamespace(processes=engines)


@pytest.fixture
def worlds(monkeypatch):
    there = {World(), World()}
    monkeypatch.setattr(px, "open_worlds", there)
    return list(there)


def test_engines_in_the_order_of_ranks_and_after_one_was_replaced(worlds, capsys):
    shell, world = Shell(), worlds[0]
    mine = Px(shell)
    mine.activate(world)
    assert shell.view("px").targets == [1, 0] and shell.view("px").block
    assert "engine 1 is rank 0, 0 is rank 1." in capsys.readouterr().out
    mine.refresh()
    assert not capsys.readouterr().out
    world.ids[1] = 2
    mine.refresh()
    assert shell.view("px").targets == [1, 2]
    assert "engine 1 is rank 0, 2 is rank 1." in capsys.readouterr().out


def test_a_rank_that_could_not_be_replaced_does_not_disturb_every_cell(worlds):
    shell, world = Shell(), worlds[0]
    mine = Px(shell)
    mine.activate(world)

    def gone(_rank):
        raise WorldError("the process of rank 1 cannot be reached.")

    world._ranks.processes.engine_id = gone
    mine.refresh()
    assert shell.view("px").targets == [1, 0]


def test_targets_that_the_user_has_chosen_stay(worlds):
    shell = Shell()
    mine = Px(shell)
    mine.activate(worlds[0])
    shell.view("px").targets = [0]
    mine.refresh()
    assert shell.view("px").targets == [0]


def test_it_ends_with_its_world(worlds):
    shell = Shell()
    mine = Px(shell)
    mine.activate(worlds[0])
    mine.activate(worlds[1])
    assert shell.view("px").client is worlds[1]._ranks.processes.client
    worlds[1].closed = True
    mine.refresh()
    assert shell.magics_manager.magics == {"line": {}, "cell": {}}


def test_another_clusters_stays(worlds, capsys):
    shell, client = Shell(), Client()
    shell.register_magics(ParallelMagics(shell, client.direct_view("all")))
    mine = Px(shell)
    mine.activate(worlds[0])
    assert shell.view("px").client is client and shell.view("px_ddp").targets == [1, 0]
    assert "for the ranks use %px_ddp" in capsys.readouterr().out
    mine.deactivate()
    assert shell.view("px").client is client and "px_ddp" not in shell.magics_manager.magics["line"]


@pytest.mark.parametrize("whose", ["of a closed cluster", "of a world"])
def test_one_that_nobody_needs_is_taken_over(worlds, whose, capsys):
    shell, client = Shell(), Client()
    if whose == "of a world":
        client = worlds[1]._ranks.processes.client
    client._closed = whose == "of a closed cluster"
    shell.register_magics(ParallelMagics(shell, client.direct_view("all")))
    Px(shell).activate(worlds[0])
    assert shell.view("px").client is worlds[0]._ranks.processes.client and "px_ddp" not in capsys.readouterr().out
