"""Attributes of a module that were set on its wrapper."""

from __future__ import annotations

from tests.rules.recordings import asked, line, recorded


def test_an_attribute_that_is_set_on_the_wrapper():
    taken = recorded(
        lambda r: (r.event("attribute on wrapper", line(8), name="alpha") if r.rank == 1 else r).finishes()
    )
    (found,) = asked("DDP413", taken)
    assert (found.code, found.culprits, found.where) == ("DDP413", (1,), ((1, line(8)),))
    assert "model.module.alpha" in found.remedy
