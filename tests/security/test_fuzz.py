"""Files and messages of strangers, made at random: each is read, shown and exported, or refused with a reason.

What was found is a test of its own, beside what it was found in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import resource
import socket
import struct
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddpnb import texts
from ddpnb.recorder.channel import control_channel
from ddpnb.recorder.channel.control_channel import ControlChannel
from ddpnb.recorder.channel.encoding import encodable
from ddpnb.recorder.channel.socket_channel import SocketChannel
from ddpnb.recording import verbs
from ddpnb.recording.messages import tracebacks
from ddpnb.recording.protocol import key_file
from ddpnb.render.views.columns import EVENT
from ddpnb.render.views.lane_calls import LaneCalls
from ddpnb.studies.reenactment.representatives import classes
from tests.security import mutations
from tests.security.mutations import MUTATIONS, attempts

ROOT = Path(__file__).parents[2]
MEMORY, SECONDS = 4 << 30, 240  # of a process that tries many files, figures included
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(mutations.TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
CALM = settings(
    deadline=None, max_examples=60, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
ANY = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_few_mutations_of_real_files(kind):
    assert not list(attempts(kind, range(4)))


@pytest.mark.full
@pytest.mark.timeout(SECONDS * 4)
@pytest.mark.parametrize("first", range(1000, 1400, 100))
@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutations_of_real_files(kind, first):
    """In a process that ends where it takes too much."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    command = [sys.executable, "-m", "tests.security.mutations", kind, str(first), str(first + 100)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=limited, check=False)  # noqa: PLW1509
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[-4000:] + done.stderr[-2000:]


@given(ANY)
@CALM
def test_any_text_is_safe_to_show_and_to_write(given):
    shown = texts.printable(given)
    assert texts.printable(shown) == shown
    assert not any(0xD800 <= ord(c) <= 0xDFFF or c in "\x1b\x9b\u202e\u2066\u200b\u061c" for c in shown)
    line = texts.comment(given)
    assert line.isascii() and len(line.splitlines()) <= 1 and (not line or line.isprintable())
    shown.encode()


def fields_of(kind):
    return {one.name for one in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()


LIVING = "evaluate", "open", "snapshot"  # these look at this process
KINDS = {name: kind for name, kind in verbs._VERBS.items() if name not in LIVING}


@given(st.sampled_from(sorted(KINDS)), st.data())
@CALM
def test_any_request_is_answered(monkeypatch, verb, data):
    """A program of the same user that misbehaves: the rank answers, and does not fail."""
    monkeypatch.setattr(control_channel.clock, "correct", int)
    channel = ControlChannel(MagicMock(), MagicMock(), MagicMock())
    kind = KINDS[verb]
    facts = data.draw(st.dictionaries(st.sampled_from([*fields_of(kind), "other"]), JSON, max_size=4))
    for asked in ({"verb": verb, "facts": facts}, {"verb": facts, "facts": verb}):
        answer = channel.answer(json.loads(json.dumps(asked)))
        assert list(answer) == ["facts"]
        json.dumps(encodable(answer), default=str)


@given(st.sampled_from(sorted(verbs._VERBS)), st.data())
@CALM
def test_any_answer_is_one_of_its_verb(verb, data):
    kind = verbs._VERBS[verb]
    facts = data.draw(st.dictionaries(st.sampled_from([*fields_of(kind.ANSWER), "other"]), JSON, max_size=4))
    for told in ({"facts": facts}, facts):
        found = verbs.answered(kind(), json.loads(json.dumps(told)))
        assert type(found) is kind.ANSWER and (found.error or told["facts"].keys() <= fields_of(kind.ANSWER))


def test_bytes_that_are_no_request_end_their_connection_alone(tmp_path):
    channel = SocketChannel(str(tmp_path), 0, lambda request: {"echo": request})
    key = Path(key_file(str(tmp_path), 0)).read_bytes()
    rng = random.Random(0)
    lengths = (0, 1, 40, 1 << 31, (1 << 32) - 1)
    messages = [struct.pack("<I", rng.choice(lengths)) + rng.choice((b"", rng.randbytes(40))) for _ in range(40)]
    messages += [b"", b"\x01", struct.pack("<I", 400_000) + b"[" * 400_000, struct.pack("<I", 5000) + b"9" * 5000]
    for message in messages:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "rank0.sock"))
            with contextlib.suppress(ConnectionError):
                client.sendall(rng.choice((key, key, b"")) + message)
                client.shutdown(socket.SHUT_WR)
                assert client.recv(4096) == b""
    channel._listening.close()


def test_a_quoted_line_without_a_frame():
    """It was found in a mutated log: the frames end where a traceback begins again."""
    read = tracebacks.read(
        '  File "x.py", line 3, in f\nTraceback (most recent call last):\n    y = 1\nRuntimeError: boom\n'
    )
    assert [error.message for error in read] == ["boom"]


def test_ranks_that_do_the_same_share_one_class():
    """Of 65,536 ranks, a list for each of them took 32 GiB."""
    behaviour = MagicMock(made=(), making=None)
    found = classes(dict.fromkeys(range(100), behaviour))
    assert len({id(ranks) for ranks in found.values()}) == 1


@pytest.mark.timeout(20)
def test_a_lane_that_has_dropped_all_its_calls_takes_others():
    """It was found by a recording of 100,000 calls, whose picture was never done."""
    lane = LaneCalls(0)
    lane.drop(1)
    new = np.zeros(3, EVENT)
    new["number"] = range(1, 4)
    lane.take(new)
    assert lane.all()["number"].tolist() == [1, 2, 3]
