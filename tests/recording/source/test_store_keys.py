"""Lines that set a key of a store."""

from __future__ import annotations

from ddpnb.recording.source.store_keys import key_lines


def test_lines_that_set_a_key():
    source = """
store.set("ready", "1")
store.set(f"{prefix}/lr/{rank}", value)
seen.add("not a key")
self.store.compare_set("leader", "", str(rank))
store.add(name, 1)
"""
    assert key_lines(source) == ((2, "ready"), (3, "*/lr/*"), (5, "leader"))
    assert key_lines("def (") == ()
