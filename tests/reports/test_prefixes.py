"""Prefixes that are learned, records, and what must stay as it is."""

from __future__ import annotations

import pytest

from ddpnb.reports import logs
from ddpnb.reports.facts import NOBODY, Speaker
from ddpnb.reports.prefixes import who

TRACEBACK = ["Traceback (most recent call last):", '  File "t.py", line 3, in f', "    step()", "ValueError: bad"]


@pytest.mark.parametrize(
    ("prefix", "speaker"),
    [
        ("2026-05-19 10:10:29,701 - rank 3 - ERROR - ", Speaker(3)),
        ("[2026-05-19 10:10:29] [node-7] [RANK=12] ", Speaker(12, 0, "node-7")),
        ("trainer/0 ", Speaker(None, 0, "trainer/0")),
        ("10.0.0.1: ", Speaker(None, 0, "10.0.0.1")),
        ("local_rank 3: ", NOBODY),
        ("E0519 10:10:29.701000 4711 agent.py:12] ", NOBODY),
        ("(WorkerDict pid=71, ip=10.1.1.2) [RANK=3] ", Speaker(3, 71, "10.1.1.2")),
    ],
)
def test_whom_a_prefix_names(prefix, speaker):
    assert who(prefix) == speaker
    log = logs.read("x.log", "\n".join(prefix + line for line in TRACEBACK))
    assert log.text.split("\n") == TRACEBACK
    assert {one.rank for one in log.speakers} == {speaker.rank}


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Caught\nOriginal Traceback (most recent call last):\n" + "\n".join(TRACEBACK[1:]),
        "epoch 1\nrank: 3\nstep 4",
        "=== rank 0 ===\n=== rank 1 ===\n" + "\n".join(TRACEBACK),
        '{"loss": 2.1, "step": 3}\n{"loss": 2.0, "step": 4}',
        "a,b\n1,2\n3,4",
        '  exitcode  : 1 (pid: 7)\n  traceback : Traceback (most recent call last):\n    File "t.py", line 3, in f',
    ],
)  # fmt: skip
def test_what_is_no_prefix_stays(text):
    log = logs.read("x.log", text)
    assert log.text == text
    assert set(log.speakers) == {NOBODY}


def test_a_prefix_before_the_first_line_alone_counts_for_the_whole_traceback():
    log = logs.read("x.log", "\n".join(["(Worker[rank=3] pid=1) " + TRACEBACK[0], *TRACEBACK[1:], "step 5"]))
    assert [one.rank for one in log.speakers] == [3, 3, 3, 3, None]


def test_records_of_several_pods_keep_their_names():
    text = '{"log": "a", "pod": "job-0"}\n{"log": "b", "pod": "job-1", "rank": 1}\n'
    assert logs.read("x.log", text).speakers[:2] == [Speaker(None, 0, "job-0"), Speaker(1, 0, "job-1")]
