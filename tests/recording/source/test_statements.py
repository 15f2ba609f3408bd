"""Statements of one kind."""

from __future__ import annotations

from ddpnb.recording.source.statements import key_lines, requiring

SOURCE = """\
for p in model.parameters():
    p.requires_grad = True
    p.requires_grad = False
    p.requires_grad = trainable
    p.requires_grad_()
    p.requires_grad_(False)
    p.requires_grad_(requires_grad=False)
    print(p.requires_grad)
    requires_grad = True
    head.requires_grad_(
        on,
    )
"""


def test_all_but_those_that_set_it_to_false():
    assert requiring(SOURCE) == {2, 4, 5, 10}


def test_what_is_not_python():
    assert requiring("def (") == frozenset()


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
