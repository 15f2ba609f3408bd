"""Models, hooks, conversions and optimizers that were set up in a way that cannot go well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.diagnosis.divergence import ddp_setup
from tests.diagnosis.recordings import Rank, Script, group, line, record
from tests.diagnosis.training import NET, NORMED, tensor

WRAPPED, STEP = line(3), line(9)
SYNCED = tuple(replace(one, kind="SyncBatchNorm") if one.kind else one for one in NORMED)
COMPRESSION = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook"


def recorded(make, world=4, script=None):
    """``make(rank)`` sets each rank up; then all train."""
    return record(*(make(Rank(number, world)).trains(1, STEP).finishes() for number in range(world)), script=script)


def some(culprits, odd, usual):
    return lambda rank: odd(rank) if rank.rank in culprits else usual(rank)


def others(culprits, world=4):
    return tuple(number for number in range(world) if number not in culprits)


def wraps(*tensors, **more):
    return lambda rank: rank.wraps(*tensors, at=WRAPPED, **more)


def the_finding(recording):
    (found,) = ddp_setup.find(recording)
    assert found.severity == "error"
    assert found.summary and found.remedy
    assert diagnose(recording).findings[0].code == found.code
    return found


def test_all_is_well():
    assert ddp_setup.find(recorded(wraps(*NORMED))) == []
    assert ddp_setup.find(record(Rank(0, 2), Rank(1, 2))) == []


# -- DDP202: devices


@pytest.mark.parametrize("culprits", [(0,), (2,), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize(("left", "usual"), [("cpu", "cuda:0"), ("meta", "cpu")])
def test_a_part_of_the_model_stayed_elsewhere(culprits, left, usual):
    moved = [tensor(f"layer.{n}", device=usual) for n in range(3)]
    odd = [*moved, tensor("head.weight", device=left)]
    found = the_finding(recorded(some(culprits, wraps(*odd), wraps(*moved, tensor("head.weight", device=usual)))))
    assert (found.code, found.culprits, found.waiting) == ("DDP202", culprits, ())
    assert found.tensors == ("head.weight",)
    assert found.where == tuple((number, WRAPPED) for number in culprits)
    assert left in found.summary


def test_most_of_the_model_is_on_meta():
    """What has no values is what is wrong, be it most of it."""
    tensors = [tensor("a", device="meta"), tensor("b", device="meta"), tensor("c", device="cpu")]
    assert the_finding(recorded(wraps(*tensors))).tensors == ("a", "b")
    assert the_finding(recorded(wraps(*tensors[:2]))).tensors == ("a", "b")


def test_a_model_that_is_split_over_devices_on_purpose():
    assert ddp_setup.find(recorded(wraps(tensor("a", device="cuda:0"), tensor("b", device="cuda:1")))) == []


def test_each_rank_on_its_own_device():
    assert ddp_setup.find(recorded(lambda r: r.wraps(tensor("a", device=f"cuda:{r.rank}"), at=WRAPPED))) == []


# -- DDP403, DDP404: models that differ

TALL = (tensor("fc.weight", (8, 4)), tensor("fc.bias", (8,)))
TWO = (tensor("one.weight", (4, 4)), tensor("other.weight", (4, 4)), tensor("head", (2,)))


@pytest.mark.parametrize("culprits", [(0,), (3,), (1, 2)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual", "tensors"),
    [
        (TALL, NET, ("fc.weight", "fc.bias")),
        ((*NET, tensor("extra")), NET, ("extra",)),
        (NET, (*NET, tensor("extra")), ("extra",)),
        ((NET[0],), NET, ("fc.bias",)),
        ((NET[0], replace(NET[1], trains=False)), NET, ("fc.bias",)),
    ],
    ids=["other shapes", "one more", "one less", "no bias", "frozen"],
)
def test_models_that_differ(culprits, odd, usual, tensors):
    found = the_finding(recorded(some(culprits, wraps(*odd), wraps(*usual)), world=5))
    assert (found.code, found.culprits, found.waiting) == ("DDP403", culprits, others(culprits, 5))
    assert found.tensors == tensors
    assert dict(found.where) == dict.fromkeys(range(5), WRAPPED)


def test_three_different_models_are_each_named_with_their_ranks():
    found = the_finding(record(*(Rank(n, 3).wraps(tensor("fc.weight", (4 + n,)), at=WRAPPED) for n in range(3))))
    assert (found.code, found.culprits, found.sides) == ("DDP403", (), ((0,), (1,), (2,)))
    for number in (1, 2):
        assert (
            f"fc.weight (float32 [{4 + number}]) instead of fc.weight (float32 [4]) on rank {number}" in found.summary
        )
    assert "ranks 1 and 2" not in " ".join((found.summary, *found.evidence))
    assert found.evidence[0] == "Parameters and buffers: 1 and 0 on rank 0, 1 and 0 on rank 1, 1 and 0 on rank 2."


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
@pytest.mark.parametrize(
    ("odd", "tensors"),
    [
        ((TWO[1], TWO[0], TWO[2]), ("other.weight", "one.weight")),
        ((TWO[2], TWO[0], TWO[1]), ("head", "one.weight", "other.weight")),
        ((TWO[0], replace(TWO[1], dtype="bfloat16"), TWO[2]), ("other.weight",)),
    ],
    ids=["two of one shape", "shapes too", "type"],
)
def test_parameters_in_another_order_or_of_another_type(culprits, odd, tensors):
    found = the_finding(recorded(some(culprits, wraps(*odd), wraps(*TWO))))
    assert (found.code, found.culprits, found.waiting) == ("DDP404", culprits, others(culprits))
    assert found.tensors == tensors


def test_other_names_for_the_same_are_a_matter_of_taste():
    renamed = tuple(replace(one, name=f"module.{one.name}") for one in NET)
    assert ddp_setup.find(recorded(some((1,), wraps(*renamed), wraps(*NET)))) == []


def test_models_on_different_groups_or_of_different_wrappers_may_differ():
    stages = recorded(some((2, 3), wraps(*TALL, group=group(2, 3)), wraps(*NET, group=group(0, 1))))
    assert ddp_setup.find(stages) == []
    assert ddp_setup.find(recorded(some((1,), wraps(*TALL, wrapper="Other"), wraps(*NET)))) == []


def test_models_without_a_wrapper_may_differ():
    """Trained by hand: who says that they are to be alike?"""
    assert ddp_setup.find(recorded(some((1,), lambda r: r.adopts(*TALL), lambda r: r.adopts(*NET)))) == []


def test_each_model_is_compared_with_its_own():
    def make(rank):
        rank.wraps(at=WRAPPED).wraps(*(TALL if rank.rank == 1 else NET), module="Critic", at=line(4))
        return rank

    found = the_finding(recorded(make))
    assert (found.code, found.culprits, dict(found.where)[1]) == ("DDP403", (1,), line(4))
    assert "Critic" in found.summary


# -- DDP416: hooks


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual"),
    [
        (lambda r: r.hooks(COMPRESSION, line(5)), lambda r: r),
        (lambda r: r, lambda r: r.hooks(COMPRESSION, line(5))),
        (lambda r: r.hooks(COMPRESSION, line(5)), lambda r: r.hooks("allreduce_hook", line(5))),
        (
            lambda r: r.hooks("powerSGD_hook", line(5), state="PowerSGDState"),
            lambda r: r.hooks("powerSGD_hook", line(5)),
        ),
    ],
    ids=["one alone", "all but one", "another", "another state"],
)
def test_hooks_that_differ(culprits, odd, usual):
    found = the_finding(recorded(some(culprits, lambda r: odd(wraps()(r)), lambda r: usual(wraps()(r)))))
    assert (found.code, found.culprits, found.waiting) == ("DDP416", culprits, others(culprits))
    assert dict(found.where).keys() == {0, 1, 2, 3}
    assert set(dict(found.where).values()) <= {line(5), WRAPPED}
    assert len(found.evidence) == 4


def test_the_same_hook_on_all_ranks():
    assert ddp_setup.find(recorded(lambda r: wraps()(r).hooks(COMPRESSION, line(5)))) == []


def test_a_rank_without_a_model_needs_no_hook():
    ranks = [Rank(n, 3).wraps(group=group(0, 1)).hooks(COMPRESSION) for n in (0, 1)]
    assert ddp_setup.find(record(*ranks, Rank(2, 3))) == []
    assert ddp_setup.find(record(ranks[0], Rank(1, 3), Rank(2, 3))) == []


def test_a_hook_that_a_rank_has_forgotten_is_not_missing():
    """Its box keeps the last events: the hook was registered long ago."""
    make = some((2,), lambda r: wraps()(r).forgets_events(3), lambda r: wraps()(r).hooks(COMPRESSION, line(5)))
    assert ddp_setup.find(recorded(make)) == []


# -- DDP412: SyncBatchNorm


def test_a_conversion_that_a_rank_has_forgotten_is_not_missing():
    make = some((2,), lambda r: wraps()(r).forgets_events(3), lambda r: wraps()(r.converts(1, line(2))))
    assert ddp_setup.find(recorded(make)) == []


@pytest.mark.parametrize("culprits", [(0,), (0, 1, 2, 3)], ids=str)
def test_converted_after_wrapping(culprits):
    taken = recorded(some(culprits, lambda r: wraps(*NORMED)(r).converts(2, line(6), wrapped=True), wraps(*NORMED)))
    found = the_finding(taken)
    assert (found.code, found.culprits) == ("DDP412", culprits)
    assert found.where == tuple((number, line(6)) for number in culprits)


def test_the_module_inside_the_wrapper_is_converted():
    """model.module = convert_sync_batchnorm(model.module): it is not the wrapper that is given."""
    assert the_finding(recorded(lambda r: wraps(*NORMED)(r).converts(2, line(6)))).culprits == (0, 1, 2, 3)


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_converted_on_some_ranks(culprits):
    taken = recorded(some(culprits, lambda r: wraps(*SYNCED)(r.converts(1, line(2))), wraps(*NORMED)))
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP412", culprits, others(culprits))
    assert dict(found.where)[culprits[0]] == line(2)
    assert dict(found.where)[others(culprits)[0]] == WRAPPED


def test_converted_on_each_rank_to_another_extent():
    ranks = [wraps(*NORMED)(Rank(n, 3).converts(n, line(2))) for n in range(3)]
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP412", (), ((0,), (1,), (2,)))
    assert "0 on rank 0, 1 on rank 1, 2 on rank 2" in found.summary


def test_converted_before_wrapping_on_all_ranks():
    assert ddp_setup.find(recorded(lambda r: wraps(*SYNCED)(r.converts(1, line(2))))) == []


def test_a_second_model_that_is_converted_and_then_wrapped():
    def make(rank):
        return wraps(*SYNCED, module="Critic")(wraps(*SYNCED)(rank.converts(1)).converts(1))

    assert ddp_setup.find(recorded(make)) == []


def test_converted_and_never_wrapped():
    """Nobody wraps anything: a model that is trained by hand, or only looked at."""
    assert ddp_setup.find(recorded(lambda r: r.converts(1))) == []


# -- DDP410: an optimizer of other tensors


@pytest.mark.parametrize("culprits", [(1,), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize(
    "facts",
    [
        {"copies": True, "strangers": 2, "missing": ["fc.weight", "fc.bias"]},
        {"strangers": 1, "missing": ["fc.bias"]},
    ],
    ids=["a copy of the model", "a head that was made anew"],
)
def test_an_optimizer_that_holds_stale_tensors(culprits, facts):
    make = some(culprits, lambda r: wraps()(r).optimizes(line(7), **facts), lambda r: wraps()(r).optimizes(line(7)))
    taken = record(*(make(Rank(number)).forward(STEP).backward(STEP).finishes() for number in range(4)))
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP410", culprits, others(culprits))
    assert found.where == tuple((number, line(7)) for number in culprits)
    assert found.tensors == tuple(facts["missing"])


@pytest.mark.parametrize(("backwards", "codes"), [(2, []), (3, ["DDP410"])])
def test_an_optimizer_that_holds_nothing_of_what_is_trained(backwards, codes):
    """A head was exchanged after the optimizer had been made of the old one alone."""

    def make(number):
        rank = wraps()(Rank(number)).optimizes(line(7), strangers=2, missing=["fc.weight", "fc.bias"])
        for _ in range(backwards):
            rank.forward(STEP).backward(STEP)
        return rank.finishes()

    assert [found.code for found in ddp_setup.find(record(*map(make, range(4))))] == codes


def test_an_optimizer_of_another_model_of_the_same_shapes():
    """A teacher, or what was trained before: the wrapped model has an optimizer of its own."""
    copies = {"copies": True, "strangers": 2, "missing": ["fc.weight", "fc.bias"]}
    assert ddp_setup.find(recorded(lambda r: wraps()(r).optimizes(line(7), **copies))) == []


def test_an_optimizer_of_a_part_of_the_model():
    """A frozen body, or groups for two optimizers: what it does not hold is not stale."""
    assert ddp_setup.find(recorded(lambda r: wraps()(r).optimizes(parameters=1, missing=["fc.bias"]))) == []


def test_an_optimizer_that_also_holds_others():
    """The parameters of a loss, say."""
    assert ddp_setup.find(recorded(lambda r: wraps()(r).optimizes(parameters=3, strangers=1))) == []


def test_two_models_with_an_optimizer_each():
    """To the generator everything in the discriminator's optimizer is strange, and the other way round."""
    names = [one.name for one in NET]

    def make(rank):
        wraps(module="Critic")(wraps(module="Generator")(rank))
        for mine in (0, 1):
            rank.optimizes(model=mine).optimizes(model=1 - mine, strangers=2, missing=names)
        return rank

    assert ddp_setup.find(recorded(make)) == []


def test_two_optimizers_of_one_model_one_of_which_also_holds_others():
    def make(rank):
        rank = wraps()(rank).optimizes(parameters=2, strangers=1, missing=["fc.bias"])
        return rank.optimizes(parameters=1, missing=["fc.weight"])

    assert ddp_setup.find(recorded(make)) == []


# -- DDP405: parameters that came later


@pytest.mark.parametrize("culprits", [(0,), (0, 1, 2, 3)], ids=str)
def test_parameters_that_came_into_the_model_after_wrapping(culprits):
    script = Script("""
        model = DDP(net)   # wrapped
        net.head = Linear(4, 4)
        for batch in loader:
            loss = model(batch)   # step
    """)
    at = script.at("step")
    taken = recorded(some(culprits, lambda r: wraps()(r).replaces("head.weight", at=at), wraps()), script=script)
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP405", culprits, others(culprits))
    assert found.tensors == ("head.weight",)
    assert {site for _, site in found.where} == {WRAPPED}  # both places were observed: it was wrapped too early
    assert any(f":{script.line('step')}" in text for text in found.evidence)


def test_the_place_of_replaced_parameters_is_where_their_own_model_was_wrapped():
    def make(rank):
        rank.wraps(at=line(4)).wraps(*NORMED, module="Critic", at=line(5))
        return rank.replaces("head.weight", at=STEP, model=0)

    assert {site for _, site in the_finding(recorded(make)).where} == {line(4)}


@pytest.mark.parametrize("special", [0, 1])
def test_of_two_hooks_neither_is_the_odd_one(special):
    script = Script(f"""
        if dist.get_rank() == {special}:
            model.register_comm_hook(None, own)   # special
        else:
            model.register_comm_hook(None, usual)   # usual
    """)

    def make(rank):
        odd = rank.rank == special
        at = script.at("special" if odd else "usual")
        return wraps()(rank).event("comm hook", at, hook="own" if odd else "usual", state="", settings={})

    found = the_finding(recorded(make, world=2, script=script))
    assert (found.code, found.culprits, found.sides) == ("DDP416", (), ((0,), (1,)))
    assert dict(found.where) == {special: script.at("special"), 1 - special: script.at("usual")}


def hooked(one, **settings):
    return wraps()(one).event("comm hook", line(5), hook="train.hook", state="NoneType", settings=settings)


def test_one_hook_with_other_settings():
    taken = recorded(
        some((3,), lambda r: hooked(r, dtype="torch.bfloat16"), lambda r: hooked(r, dtype="torch.float16"))
    )
    found = the_finding(taken)
    assert (found.code, found.culprits) == ("DDP416", (3,))
    assert "dtype=torch.bfloat16" in " ".join(found.evidence)


def test_settings_of_a_hook_that_are_each_ranks_own():
    assert ddp_setup.find(recorded(lambda r: hooked(r, rank=str(r.rank), log_path=f"/tmp/{r.rank}"))) == []
