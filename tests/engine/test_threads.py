"""Stacks and locals are bounded, and describing them runs no code of the user's."""

from __future__ import annotations

import sys
import threading
import time

import pytest
import torch

from ddpnb.engine import locals as frame_locals
from ddpnb.engine import threads


class Hostile:
    def __repr__(self):
        raise AssertionError("repr was called")

    def __getattr__(self, name):
        raise AssertionError("an attribute was asked for")


def test_locals_are_bounded_and_plain():
    hostile, text, many, tensor = Hostile(), "x" * 10_000, list(range(10_000)), torch.tensor(0.5, requires_grad=True)
    assert [hostile, tensor] and len(text) == len(many)
    found = frame_locals.describe_locals(sys._getframe())
    assert "Hostile" in found["hostile"]
    assert all(len(value) <= frame_locals.MAX_TEXT + 1 for value in found.values())
    assert found["tensor"] == "tensor[] float32 cpu = 0.5"
    assert found["many"].startswith("[0, 1")


def test_too_many_locals():
    code = "\n".join(f"v{n} = {n}" for n in range(200)) + "\nframe = __import__('sys')._getframe()"
    namespace = {}
    exec(code, namespace)
    assert len(frame_locals.describe_locals(namespace["frame"])) <= frame_locals.MAX_LOCALS


def test_deep_stacks_are_cut_at_the_outer_end():
    def down(depth):
        return threads.frames_of(sys._getframe(), False) if depth == 0 else down(depth - 1)

    frames = down(200)
    assert len(frames) == threads.MAX_FRAMES
    assert frames[-1]["function"] == "down"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_the_main_thread_waits_on():
    seen = []

    def look():
        time.sleep(0.2)
        seen.append(threads.waits_on())

    looker = threading.Thread(target=look)
    looker.start()
    time.sleep(1.0)
    looker.join()
    words, wakes = seen[0]
    assert words == "sleep()"
    assert wakes == pytest.approx(0.8, abs=0.15)
