"""Lines that let tensors require gradients."""

from __future__ import annotations

from ddpnb.recording.source.gradients import requiring

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
