"""A bisection over probes that run nothing: which are tried twice, and what the log is worth."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest

from ddpnb.bisection.command import CommandSpace
from ddpnb.bisection.failure import Failure
from ddpnb.bisection.search import Search
from ddpnb.bisection.varied import Trying
from ddpnb.control.bisecting import Bisection
from ddpnb.control.bisection_log import searching
from ddpnb.control.probing import Ran
from ddpnb.errors import UsageError

HANG = Failure("DDP301", frozenset({("train.py", 7, "main")}), summary="rank 1 is missing")
CRASH = Failure(
    "DDP312", frozenset({("train.py", 3, "main")}), summary="Rank 0 raised ValueError: not a multiple of 4."
)
REFUSED = Failure("DDP312", frozenset(), summary="The script refused its arguments on ranks 0 and 1: --lr is required.")


class Probes:
    """What each command gives."""

    repository = None

    def __init__(self, answer):
        self._answer = answer
        self.commands: list[tuple[str, ...]] = []

    def run(self, trying: Trying) -> Ran:
        self.commands.append(trying.command)
        failure = self._answer(trying.command)
        return Ran((failure,), {"code": failure.code}, failure.summary) if failure else Ran()

    def options(self, _trying: Trying, /) -> list[str]:
        return []


def bisection(answer, command=("train.py", "--bs", "32"), span="bs=4..32", path=None):
    space = CommandSpace(command, span=span)
    return Bisection(space, Search(space.space), Probes(answer), path)


def test_another_failure_that_came_twice_is_not_tried_twice_again():
    def answer(command):
        size = int(command[-1])
        return CRASH if size % 4 else HANG if size >= 24 else None

    found = bisection(answer)
    assert found.run().candidates == (21, 22, 23, 24)
    sizes = [trial.probe.at for trial in found.trials if trial.answer == "other"]
    assert len(sizes) == len(set(sizes)) + 1


def test_refused_arguments_are_not_tried_twice():
    space = CommandSpace(["train.py", "--lr", "1", "--amp"])
    found = Bisection(
        space,
        Search(space.space),
        Probes(lambda command: REFUSED if "--lr" not in command else HANG if "--amp" in command else None),
    )
    assert found.run().minimal == ("--lr", "--amp")
    others = [trial.probe for trial in found.trials if trial.answer == "other"]
    assert len(others) == len(set(others)) > 0


def test_a_command_that_the_script_refuses_is_not_searched():
    with pytest.raises(UsageError, match="refused its arguments"):
        bisection(lambda _: REFUSED).run()


def test_the_log_says_which_process_writes_it(tmp_path):
    path = str(tmp_path / "log.json")
    bisection(lambda _: HANG, path=path).save()
    assert searching(path) is None  # it is this one
    log = json.loads((tmp_path / "log.json").read_text())
    assert log["process"][0] == os.getpid()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        log["process"] = [other.pid, psutil.Process(other.pid).create_time()]
        (tmp_path / "log.json").write_text(json.dumps(log))
        assert searching(path) == other.pid
        other.communicate(b"\n", timeout=30)
    assert searching(path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"process": 7}', '{"process": [1, 2, 3]}', '{"process": ["a", 1]}'])
def test_a_damaged_log_is_written_by_no_process(tmp_path, text):
    (tmp_path / "log.json").write_text(text)
    assert searching(str(tmp_path / "log.json")) is None
    assert searching(str(tmp_path / "nowhere.json")) is None
