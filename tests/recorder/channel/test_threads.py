"""Stacks and locals are bounded, and describing them runs no code of the user's."""

from __future__ import annotations

import atexit
import sys
import threading

import torch

from ddpnb.recorder.channel import threads
from ddpnb.recorder.holds.release import Release
from ddpnb.recorder.process import process_state, script
from ddpnb.recorder.stacks import locals as frame_locals
from ddpnb.recorder.stacks.user_frames import frames_of


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
    assert found["tensor"] == "0.5 (a float32 tensor)"
    assert found["many"].startswith("[0, 1")


def test_too_many_locals():
    code = "\n".join(f"v{n} = {n}" for n in range(200)) + "\nframe = __import__('sys')._getframe()"
    namespace = {}
    exec(code, namespace)
    assert len(frame_locals.describe_locals(namespace["frame"])) <= frame_locals.MAX_LOCALS


def test_deep_stacks_are_cut_at_the_outer_end():
    seen = []

    def down(depth):
        if depth:
            return down(depth - 1)
        looker = threading.Thread(target=lambda: seen.extend(threads.stacks(False)))
        looker.start()
        looker.join()
        return None

    down(200)
    (frames,) = [one["frames"] for one in seen if one["main"]]
    assert len(frames) == threads.MAX_FRAMES
    assert "down" in [frame["function"] for frame in frames[-6:]]


def test_the_frames_of_a_thread_are_those_of_one_moment():
    """In the order of the calls, up to the outermost, whatever the thread goes on doing."""
    stop = threading.Event()

    def numbers():
        while True:
            yield 1

    def steps(given, depth):
        return steps(given, depth - 1) if depth else next(given)

    def works():
        given = numbers()
        while not stop.is_set():
            steps(given, 5)

    thread = threading.Thread(target=works)
    thread.start()
    try:
        for _ in range(3000):
            names = [frame.f_code.co_name for frame in frames_of(thread.ident)]
            assert names[-3:] == ["run", "_bootstrap_inner", "_bootstrap"]
            ours = names[: names.index("works")] if "works" in names else []
            assert [name for name in ours if name != "is_set"] in (
                [], *([*["numbers"] * n, *["steps"] * depth] for n in range(2) for depth in range(7)),
            )  # fmt: skip
    finally:
        stop.set()
        thread.join()
    assert frames_of(12345) == []
    assert frames_of(threading.get_ident())[1].f_code.co_name == "test_the_frames_of_a_thread_are_those_of_one_moment"


def test_stacks_end_where_the_users_code_begins_while_it_runs_and_while_it_is_ended():
    seen = {}

    def look(when):
        seen[when] = [one["function"] for one in threads.described(frames_of(threading.get_ident()), False)]

    def main():
        atexit.register(look, "ended")
        look("runs")

    with process_state._own_atexit():
        script.run(main, Release())
    assert [seen[when][0] for when in ("runs", "ended")] == ["main", "look"]
