"""Ranks that are blocked outside any collective: what they wait for."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, Script, diagnose, record

SCRIPT = Script("""
    def main(rank):
        if rank == 0:
            store.set("best_lr", "0.1")   # other
            store.set(f"lr/{step}", "0.1")   # pattern
        if rank == 1:
            store.wait([key])   # wait
        dist.barrier()   # barrier
""")


def awaits(words):
    first = Rank(0, 2).runs(SCRIPT, "other barrier").waits("barrier", SCRIPT.at("barrier"))
    second = Rank(1, 2).runs(SCRIPT, "wait").idles(30.0, SCRIPT.at("wait"), waits_on=words)
    found = diagnose(record(first, second, script=SCRIPT), 10.0).findings
    return next(one for one in found if one.code == "DDP313")


def test_a_key_that_no_line_sets():
    found = awaits("the key 'best-lr' of the store")
    assert (found.culprits, found.waiting, found.certainty) == ((1,), (0,), "timed")
    assert "waiting for the key 'best-lr' of the store" in found.summary
    assert "Rank 1 waits for the key 'best-lr' of the store." in found.evidence
    assert "No line of the recorded source sets the key 'best-lr'." in found.evidence
    assert any("sets 'best_lr'; rank 0 ran it." in text for text in found.evidence)
    assert "same name" in found.remedy


@pytest.mark.parametrize(("key", "ran"), [("best_lr", "rank 0"), ("lr/7", "no rank")])
def test_a_key_that_a_line_sets(key, ran):
    found = awaits(f"the key '{key}' of the store")
    assert [text.partition("; ")[2] for text in found.evidence if " sets it" in text] == [f"{ran} ran it."]
    assert not any("No line" in text for text in found.evidence)


def test_what_the_kernel_says_of_other_waits():
    found = awaits("a file or socket")
    assert "Rank 1 waits for a file or socket in the kernel." in found.evidence
