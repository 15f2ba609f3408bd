"""Models without a wrapper: gradients that the optimizer takes too early, and ranks that train on their own."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, Script, diagnose, line, record
from tests.rules.training import NET, tensor

REDUCE, STEP, METRIC = line(7), line(9), line(11)
WEIGHT = "fc.weight"


def overlapped(rank, odd, shape=(4,), outstanding=1.0):
    """Averages while backward goes on, and waits for it after the optimizer has stepped."""
    rank.adopts(*NET)
    for _ in range(3):
        rank.backward(STEP).issues("all_reduce", REDUCE, shape=shape)
        rank.gradients(STEP, odd={WEIGHT: 7 + rank.rank} if odd else {}, outstanding=outstanding)
        rank.updated(STEP, odd={WEIGHT: 8 + rank.rank} if odd else {})
    return rank.finishes()


def findings(make, world=2):
    return diagnose(record(*(make(Rank(number, world)) for number in range(world)))).findings


def test_gradients_that_are_still_on_their_way():
    (found,) = findings(lambda r: overlapped(r, odd=True))
    assert (found.code, found.culprits, found.waiting) == ("DDP316", (0, 1), ())
    assert dict(found.where)[0] == STEP
    assert str(REDUCE) in found.summary
    assert "optimizer.step()" in found.remedy


@pytest.mark.parametrize(
    "more",
    [{"odd": False}, {"odd": True, "shape": (1,)}, {"odd": True, "outstanding": 0.0}],
    ids=["they agree", "a metric is on its way", "all were waited for"],
)
def test_nothing_is_taken_too_early(more):
    assert not [one for one in findings(lambda r: overlapped(r, **more)) if one.code == "DDP316"]


def test_what_the_source_shows_of_another_call_does_not_replace_what_was_recorded():
    """A metric is read before its wait(); the gradients that were on their way are what made the replicas differ."""
    script = Script("""
        def main():
            work = dist.all_reduce(metric, async_op=True)   # metric
            print(metric)
            work.wait()
            dist.all_reduce(p.grad, async_op=True)   # reduce
            optimizer.step()   # step
    """)

    def make(number):
        rank, at = Rank(number, 2).adopts(*NET), script.at("step")
        for turn in range(2):
            rank.calls("all_reduce", script.at("metric")).issues("all_reduce", script.at("reduce")).backward(at)
            rank.gradients(at, odd={WEIGHT: 90 + turn + number}, outstanding=1.0)
            rank.updated(at, odd={WEIGHT: 50 + turn + number})
        return rank.finishes()

    told = diagnose(record(make(0), make(1), script=script))
    (found,) = [one for one in told.findings if one.code == "DDP316"]
    assert (found.severity, told.outcome) == ("error", "divergence")
    assert found.summary.startswith("Optimizer step 1 runs while calls")


def test_a_call_whose_work_is_thrown_away_is_the_place():
    """The averages of the weights are still on their way: the line to change is the call, not the optimizer's step."""
    script = Script("""
        def main():
            dist.all_reduce(p.data, async_op=True)   # reduce
            optimizer.step()   # step
    """)

    def make(number):
        rank, at = Rank(number, 2).adopts(*NET), script.at("step")
        rank.issues("all_reduce", script.at("reduce")).backward(at)
        rank.gradients(at, odd={WEIGHT: 90 + number}, outstanding=1.0).updated(at, odd={WEIGHT: 50 + number})
        return rank.finishes()

    (found,) = diagnose(record(make(0), make(1), script=script)).findings
    assert (found.code, found.severity, found.culprits) == ("DDP316", "error", (0, 1))
    assert found.where == (
        *((rank, script.at("reduce")) for rank in (0, 1)),
        *((rank, script.at("step")) for rank in (0, 1)),
    )
    assert found.hint.line == script.line("reduce") and found.hint.reason.startswith("Nothing waits")


# -- DDP409: gradients that each rank clips by its own norm, and then averages


def sends(rank, sent=lambda local: min(1.0, local), steps=4, own=1.0, torch=False):
    rank.adopts(*NET)
    for turn in range(1, steps + 1):
        local = own * (0.6 * turn + rank.rank)
        rank.backward(STEP).sample("sent", REDUCE, turn=turn, local=local, sent=sent(local))
        if torch:
            rank.sample("clip", STEP, norm=local, max_norm=1.0)
        rank.gradients(STEP).updated(STEP)
    return rank.finishes()


def test_gradients_that_each_rank_scales_by_its_own_norm():
    (found,) = findings(sends)
    assert (found.code, found.culprits, found.certainty) == ("DDP409", (0, 1), "likely")
    assert dict(found.where) == {0: REDUCE, 1: REDUCE}
    assert found.evidence[1] == "Rank 1: norm 2.2 after backward, 1 at the first call after it."


@pytest.mark.parametrize(
    "how",
    [
        {"sent": lambda local: local},
        {"sent": lambda local: local / 2},
        {"sent": lambda local: 1.0 if local > 2 else local},
        {"own": 0.2},
        {"steps": 2},
        {"torch": True},
    ],
    ids=["kept", "weighted", "a norm that is exceeded", "never exceeded", "rarely", "by torch, which is seen itself"],
)
def test_gradients_that_were_not_scaled_to_one_norm(how):
    assert "likely" not in [one.certainty for one in findings(lambda rank: sends(rank, **how)) if one.code == "DDP409"]


# -- DDP405: models that never were the same


@pytest.mark.parametrize("seeds", [(7, 8), (7, 7)], ids=str)
def test_seeds_of_ones_own_before_a_model_is_made(seeds):
    """Gradients are averaged by hand, but each rank has drawn other parameters."""

    def make(rank):
        one = Rank(rank, 2).event("seed set", line(5), seed=seeds[rank])
        one.adopts(*NET, at=STEP).drifts({"fc.weight": 100 + rank})
        for _ in range(4):
            one.backward(STEP).calls("all_reduce", REDUCE, shape=(4,)).gradients(STEP).updated(STEP)
        return one.finishes()

    (found,) = (one for one in diagnose(record(make(0), make(1))).findings if one.code == "DDP405")
    told = f"Rank 1 called torch.manual_seed({seeds[1]}) at {line(5)} in main."
    assert (told in found.evidence, (1, line(5)) in found.where) == (
        (True, True) if seeds[0] != seeds[1] else (False, False)
    )


# -- DDP417: a group exists, each rank trains, and nothing is ever synchronised

AT = line(20)
WIDE = (tensor("fc.weight", (64, 64)), tensor("fc.bias", (64,)))
NUMBER = 1000


def alone(rank, steps=4, each=None, before=None, model=WIDE, drift=None, **adopted):
    """Trains without a wrapper; ``each``: what it does after every step, ``before``: before the first."""
    one = Rank(rank, 2)
    if before is not None:
        before(one)
    one.adopts(*model, number=NUMBER, **adopted).optimizes(AT, model=NUMBER)
    one.drifts({"fc.weight": 100 + rank if drift is None else drift, "fc.bias": 200 + rank if drift is None else drift})
    for _ in range(steps):
        one.backward(AT, model=NUMBER)
        one.gradients(AT, model=NUMBER, odd={"fc.weight": 70 + rank, "fc.bias": 80 + rank})
        one.updated(AT, model=NUMBER)
        if each is not None:
            each(one)
    return one


def found(make):
    diagnosis = diagnose(record(*(make(rank).finishes() for rank in range(2))))
    return diagnosis, [finding for finding in diagnosis.findings if finding.code == "DDP417"]


def test_models_that_nothing_synchronises_are_a_warning():
    diagnosis, (finding,) = found(alone)
    assert (diagnosis.outcome, diagnosis.errors) == ("ok", ())
    assert (finding.severity, finding.certainty, finding.culprits) == ("warning", "likely", (0, 1))
    assert finding.evidence[0] == "Rank 0: 4 optimizer steps of SGD, no collectives since the first."
    assert any("fc.weight" in text for text in finding.evidence)
    assert {site.line for _, site in finding.where} == {20}


@pytest.mark.parametrize(
    "each",
    [
        lambda one: one.calls("all_reduce", shape=()),
        lambda one: one.calls("all_reduce", shape=(3,)),
        lambda one: one.calls("barrier"),
        lambda one: one.calls("all_gather", shape=(100_000,), dtype="uint8"),
    ],
    ids=["a loss", "metrics", "a barrier", "objects"],
)
def test_metrics_and_objects_synchronise_nothing(each):
    _, (finding,) = found(lambda rank: alone(rank, each=each))
    assert finding.evidence[0].startswith("Rank 0: 4 optimizer steps of SGD, 4 collectives (the last: ")


def test_a_broadcast_before_the_first_step_is_not_enough():
    _, (finding,) = found(lambda rank: alone(rank, before=lambda one: one.calls("broadcast", shape=(64, 64), root=0)))
    assert finding.evidence[0] == "Rank 0: 4 optimizer steps of SGD, no collectives since the first."


@pytest.mark.parametrize(
    "make",
    [
        lambda rank: alone(rank, each=lambda one: one.calls("all_reduce", shape=(64, 64))),
        lambda rank: alone(rank, each=lambda one: one.calls("all_reduce", shape=(4160,), dtype="bfloat16")),
        lambda rank: alone(
            rank,
            each=lambda one: one.calls("all_reduce", shape=(8, 8)),
            model=tuple(tensor(f"{n}.weight", (8, 8)) for n in range(6)),
        ),
        lambda rank: alone(rank, each=lambda one: one.sends(1 - rank, shape=(2,))),
        lambda rank: alone(rank, each=lambda one: one.calls("all_to_all_single", shape=(8,))),
        lambda rank: alone(rank, drift=7),
        lambda rank: alone(rank, steps=1),
        lambda rank: alone(rank, sharded=True),
        lambda rank: alone(rank, model=(tensor("fc.weight", (64, 64 + rank)),)),
        lambda rank: alone(rank).forgets(3),
        lambda rank: alone(rank).absent(),
        lambda rank: alone(rank).joined(world_size=1),
        lambda rank: alone(rank).wraps(number=3),
    ],
    ids=[
        "gradients", "one bucket", "one of many", "a pipeline", "experts", "equal", "one step", "sharded", "other models", "unknown calls",
        "no group", "groups of one", "another is wrapped",
    ],
)  # fmt: skip
def test_what_is_synchronised_or_meant_to_differ_is_silent(make):
    assert found(make)[1] == []


def test_a_failure_comes_alone():
    recording = record(alone(0).raises("ValueError", "bad", AT), alone(1).raises("ValueError", "bad", AT))
    assert [finding.code for finding in diagnose(recording).findings] == ["DDP312"]


def test_a_search_for_hyper_parameters_is_silent():
    def make(rank):
        one = Rank(rank, 2).adopts(*WIDE, number=NUMBER).optimizes(AT, model=NUMBER)
        one.drifts({"fc.weight": 100 + rank, "fc.bias": 200 + rank})
        for _ in range(4):
            one.backward(AT, model=NUMBER).gradients(AT, model=NUMBER, lr=0.1 + rank).updated(AT, model=NUMBER)
        return one

    assert found(make)[1] == []


def beside(rank, steps=4, *, begins=0, apart=1, again=99, wrapped=WIDE, stops=99):
    """A temperature beside a wrapped model. The ranks' differ from step ``apart`` on, and no longer from ``again`` on."""
    one = Rank(rank, 2).wraps(*wrapped, at=AT)
    one.adopts(tensor("temperature", ()), module="Adam", number=NUMBER)
    one.sample("start", AT, model=NUMBER, odd={"temperature": begins * rank + 1})
    for turn in range(1, steps + 1):
        one.trains(1, AT)
        if turn <= stops:
            own = {"temperature": 100 * turn + rank * (apart <= turn < again)}
            one.gradients(AT, model=NUMBER, odd={"temperature": 7 + rank}).updated(AT, model=NUMBER, odd=own)
    return one


@pytest.mark.parametrize("apart", [1, 3], ids=["at once", "after steps that Adam made alike"])
def test_parameters_beside_a_wrapped_model_that_each_rank_trains(apart):
    diagnosis, (finding,) = found(lambda rank: beside(rank, apart=apart))
    assert (diagnosis.outcome, finding.culprits, finding.tensors) == ("ok", (0, 1), ("temperature",))
    assert any(f"since step {apart} of Adam" in text for text in finding.evidence)
    assert {site.line for _, site in finding.where} == {20}


@pytest.mark.parametrize(
    "odd",
    [{"begins": 1}, {"again": 4}, {"apart": 4}, {"apart": 9}, {"steps": 9, "stops": 2}],
    ids=["never were equal", "equal again", "once", "equal", "trained for a moment"],
)
def test_parameters_beside_a_wrapped_model_that_are_meant_to_differ(odd):
    diagnosis, findings = found(lambda rank: beside(rank, **odd))
    assert (findings, diagnosis.findings) == ([], ())
