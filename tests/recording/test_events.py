"""Events: what is written comes back, whatever was written is read, and titles and facts stand in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ddpnb
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.events import Event, Unknown, read, written
from ddpnb.recording.events.base import KINDS
from ddpnb.recording.events.data import DataLoop, DatasetSeen, LoaderSeen, Rows
from ddpnb.recording.events.models import CommHook, StateLoaded
from ddpnb.recording.events.runs import HooksDetached
from ddpnb.recording.events.startup import Environment, InitProcessGroup, NewGroup

FOLDER = Path(ddpnb.__file__).parent
PLACE = Site("train.py", 7, "main")
FULL = [
    Environment(variables={"RANK": "1"}, site=PLACE),
    InitProcessGroup(backend="gloo", world_size=2, rank=0, timeout_s=30.0, versions={"torch": "2.13"}, error="no"),
    NewGroup(ranks=(0, 3), local=True, name="1"),
    CommHook(hook="f", state_class="NoneType", settings={"dtype": "half"}),
    StateLoaded(what="model", class_name="Net", keys=("a", "b"), matched=0, given=2),
    DataLoop(loader=0, kinds={"(float32[2d])": 1}, passed=2, batches=3),
    DatasetSeen(number=0, class_name="Subset", rows=Rows(n=3, sketch=(1, 2)), parts=(DatasetSeen(number=1),)),
    Unknown(named="of a later version", details={"a": [1]}),
]


@pytest.mark.parametrize("event", FULL, ids=lambda event: event.title)
def test_what_is_written_comes_back(event):
    assert read(event.title, written(event)) == event


@pytest.mark.parametrize("title", [*KINDS, "no such event"])
@pytest.mark.parametrize("junk", [None, 3, -1, 1 << 80, 0.5, float("nan"), "x", True, [], [None], {}, {"a": {}}])
def test_facts_of_the_wrong_type_give_the_defaults(title, junk):
    usual = read(title, {})
    names = ["file", "line", "function", *written(usual), *getattr(usual, "__slots__", ())]
    assert isinstance(read(title, dict.fromkeys(names, junk)), Event)


def test_wrong_facts_do_not_spoil_the_others():
    loader = read("loader", {"loader": 4, "length": "many", "batch_size": "8", "own": "yes", "num_workers": [2]})
    assert loader == LoaderSeen(number=4, batch_size=8)
    group = read("new_group", {"ranks": [0, None, "1", 2.5, 3], "file": "a.py", "line": "x", "function": "f\x1b"})
    assert isinstance(group, NewGroup) and group.ranks == (0, 1, 3)
    assert group.site == Site("a.py", 0, "f�") and read("new_group", {}).site == NO_SITE


def test_facts_are_bounded():
    error = read("hooks detached", {"error": "x" * 100_000})
    assert isinstance(error, HooksDetached) and len(error.error) <= 4000
    facts = {"class": "Subset"}
    for _ in range(500):
        facts = {"class": "Subset", "parts": [facts]}
    event, depth = read("dataset", facts), 0
    while event.parts:
        event, depth = event.parts[0], depth + 1
    assert depth < 10


def test_titles_stand_in_one_place():
    """A rule, a view or a hook names the class of an event, never its title."""
    titles = {title for title in KINDS if " " in title}
    for path in FOLDER.rglob("*.py"):
        parts = path.relative_to(FOLDER).parts
        if (
            parts[:2] in (("recording", "events"), ("recording", "messages"), ("studies", "scan"))
            or parts[0] == "pitfalls"
            or parts[:2] == ("rules", "catalogue")
        ):
            continue
        text = path.read_text()
        if not any(title in text for title in titles):
            continue  # to parse a file takes much longer
        for node in ast.walk(ast.parse(text)):
            assert not (isinstance(node, ast.Constant) and node.value in titles), f"{path}:{node.lineno}"
