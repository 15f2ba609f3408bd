"""The first module whose output differs, from handwritten recordings."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.bisection.modules import modules
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Sample
from tests.rules.recordings import Rank, record

OUTPUTS = {"0 (Linear)": 11.0, "1 (ReLU)": 12.0, "2 (Linear)": 13.0, "(model) (Net)": 13.0}
GRADIENTS = {"2.bias": 21.0, "2.weight": 22.0, "0.bias": 23.0, "0.weight": 24.0}


def rank(number, batch=5.0, world=2, drift=None, **own):
    """The first forward and backward of a rank; ``own`` holds its own digests, by index of ``OUTPUTS`` and ``GRADIENTS``."""
    one = Rank(number, world).wraps()
    if drift:
        one.drifts(drift)
    one.forward()
    outputs = {"inputs": batch} | {
        name: own.get(f"o{place}", value) for place, (name, value) in enumerate(OUTPUTS.items())
    }
    gradients = {name: own.get(f"g{place}", value) for place, (name, value) in enumerate(GRADIENTS.items())}
    extra = (Sample(0, "outputs", 1, facts=outputs), Sample(0, "local", 1, facts=gradients))
    recording = record(one.finishes())
    return replace(recording.ranks[number], samples=(*recording.ranks[number].samples, *extra))


def of(*ranks):
    return Recording(len(ranks), {one.rank: one for one in ranks})


def test_the_first_output_that_differs():
    located = modules(of(rank(0), rank(1, o1=99.0, o2=98.0, o3=98.0)))
    assert (located.result.last_good, located.result.first_bad) == ("0 (Linear)", "1 (ReLU)")
    assert located.lines[0] == "1 (ReLU) is the first output that differs in the first forward: rank 0 | rank 1."
    assert located.facts == {"in": "forward", "sides": [["rank 0"], ["rank 1"]]}


def test_the_first_gradient_that_differs():
    located = modules(of(rank(0), rank(1, g2=99.0)))
    assert (located.result.last_good, located.result.first_bad) == ("2.weight", "0.bias")
    assert "gradient that differs in the first backward, before it is averaged" in located.lines[0]


def test_different_batches_are_no_cause():
    located = modules(of(rank(0, 5.0), rank(1, 6.0, o0=99.0)))
    assert located.result.outcome == "undecided"
    assert "first batches differ on rank 0 and rank 1, so every output does: that is no cause." in located.missing


def test_a_reference_with_the_batch_of_rank_0():
    located = modules(of(rank(0, 5.0, o2=99.0), rank(1, 6.0)), of(rank(0, 5.0, world=1)))
    assert located.result.first_bad == "2 (Linear)"
    assert "rank 0 | one rank alone." in located.lines[0]
    assert located.lines[-1] == "Not compared, because of another first batch: rank 1."


def test_all_equal():
    located = modules(of(rank(0), rank(1)), of(rank(0, world=1)))
    assert located.result.outcome == "nothing fails"
    assert "4 outputs and 4 gradients" in located.lines[0] and "one rank alone" in located.lines[0]


def test_parameters_that_differ_before():
    located = modules(of(rank(0), rank(1, drift={"fc.weight": 9}, o0=99.0)))
    assert located.result.first_bad == "parameters" and "fc.weight" in located.lines[0]


def test_a_gradient_that_one_lacks():
    one = rank(1)
    facts = {name: value for name, value in GRADIENTS.items() if name != "0.bias"}
    one = replace(one, samples=(*one.samples[:-1], Sample(0, "local", 1, facts=facts)))
    located = modules(of(rank(0), one))
    assert (located.result.first_bad, located.lines[0]) == (
        "0.bias", "0.bias is the first that not all have: rank 1 has none.",
    )  # fmt: skip


def test_what_has_no_digest_is_not_compared():
    assert modules(of(rank(0, o1=0.0), rank(1))).result.outcome == "nothing fails"


def test_batches_that_cannot_be_compared():
    assert "not all tensors" in modules(of(rank(0, 0.0), rank(1, 0.0, o1=9.0))).missing


def test_nothing_recorded():
    assert "No outputs of modules" in modules(Recording(2, {})).missing
    assert (
        "No outputs of modules" in modules(record(Rank(0, 2).wraps().trains(1), Rank(1, 2).wraps().trains(1))).missing
    )
