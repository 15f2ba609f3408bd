"""A bisection over probes that run nothing: which are tried twice, and what the log is worth."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest

from ddpnb.errors import UsageError
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.studies.bisection.command import CommandSpace, Request
from ddpnb.studies.bisection.log import searching
from ddpnb.studies.bisection.probing import CommandProber, Ran
from ddpnb.studies.bisection.search import Search


def failure(code, line, summary):
    where = [] if line is None else [{"rank": 0, "file": "train.py", "line": line, "function": "main"}]
    return {"code": code, "summary": summary, "certainty": "proven", "culprits": [0], "where": where}


HANG = failure("DDP301", 7, "rank 1 is missing")
CRASH = failure("DDP312", 3, "Rank 0 raised ValueError: not a multiple of 4.")
REFUSED = failure("DDP312", None, "The script refused its arguments on ranks 0 and 1: --lr is required.")


class Probes(CommandProber):
    """What each command gives."""

    def __init__(self, space, answer):
        super().__init__(space.request, space.trying)
        self._answer = answer

    def run(self, probe):
        failure = self._answer(self.trying(probe).command)
        return Ran([failure], failure["summary"]) if failure else Ran()


def bisection(answer, command=("train.py", "--bs", "32"), span="bs=4..32", path=None):
    space = CommandSpace(Request(command, span=span))
    return Bisection(Search(space.space), Probes(space, answer), path)


def test_another_failure_that_came_twice_is_not_tried_twice_again():
    def answer(command):
        size = int(command[-1])
        return CRASH if size % 4 else HANG if size >= 24 else None

    found = bisection(answer)
    assert found.run().candidates == (21, 22, 23, 24)
    sizes = [trial.probe.at for trial in found.trials if trial.answer == "other"]
    assert len(sizes) == len(set(sizes)) + 1


def test_refused_arguments_are_not_tried_twice():
    found = bisection(
        lambda command: REFUSED if "--lr" not in command else HANG if "--amp" in command else None,
        ("train.py", "--lr", "1", "--amp"),
        None,
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
        other.communicate(b"\n", timeout=240)
    assert searching(path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"process": 7}', '{"process": [1, 2, 3]}', '{"process": ["a", 1]}'])
def test_a_damaged_log_is_written_by_no_process(tmp_path, text):
    (tmp_path / "log.json").write_text(text)
    assert searching(str(tmp_path / "log.json")) is None
    assert searching(str(tmp_path / "nowhere.json")) is None
