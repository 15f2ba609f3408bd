"""What a library keeps between two runs, and decides when it is imported."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

from ddpnb.recorder.process import libraries


@pytest.fixture
def accelerate(monkeypatch):
    """Its state of a script that is over, as accelerate 1.15 keeps it."""
    module = ModuleType("accelerate.state")
    states = {"PartialState": {"backend": "gloo"}, "AcceleratorState": {"x": 1}, "GradientState": {"y": 2}}
    for name, state in states.items():
        setattr(module, name, SimpleNamespace(_shared_state=state))
    monkeypatch.setitem(sys.modules, "accelerate.state", module)
    return states


def test_a_script_makes_its_own_state_and_functions_share_theirs(accelerate):
    libraries.begin(fresh=False)
    assert accelerate["PartialState"] == {"backend": "gloo"}
    libraries.begin(fresh=True)
    assert [*accelerate.values()] == [{}, {}, {}]


def test_another_version_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate.state", ModuleType("accelerate.state"))
    libraries.begin(fresh=True)


def test_lightning_has_seen_a_prompt(monkeypatch):
    module = ModuleType("lightning.fabric.utilities.imports")
    module._IS_INTERACTIVE = True
    monkeypatch.setitem(sys.modules, module.__name__, module)
    libraries.begin(fresh=False)
    assert module._IS_INTERACTIVE is False


def test_tqdm_decides_again(monkeypatch):
    auto, decided = importlib.import_module("tqdm.auto"), importlib.import_module("tqdm.autonotebook")
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    for chosen, stays in (("tqdm.std", True), ("tqdm.notebook", False)):
        monkeypatch.setitem(sys.modules, "tqdm.autonotebook", decided)
        monkeypatch.setattr(decided, "tqdm", type("tqdm", (), {"__module__": chosen}))
        libraries.begin(fresh=False)
        assert ("tqdm.autonotebook" in sys.modules) == stays
    monkeypatch.delitem(sys.modules, "ipykernel.zmqshell", raising=False)
    assert importlib.import_module("tqdm.autonotebook").tqdm.__module__ == "tqdm.std"
