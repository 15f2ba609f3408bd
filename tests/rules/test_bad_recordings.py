"""Recordings that make no sense: whatever came from ranks, files and logs, there is a diagnosis and no exception.

Sound recordings are made by the builders and then mutilated at random: ranks, calls, samples and facts
are dropped, exchanged, shifted by hours or replaced by whatever JSON can hold. The seeds are fixed.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

from ddpnb.recording.calls import NO_SITE, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.events import read, written
from ddpnb.recording.events.base import fields_of
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Child, Process, RankRecord, Recording
from ddpnb.recording.replicas import Digest
from ddpnb.recording.stacks import Frame, Stack
from tests.rules.recordings import FILE, TORCH_FRAME, Rank, Script, diagnose, group, line, record
from tests.rules.training import NET, NORMED, tensor

HOUR = 3600 * 10**9
SCRIPT = Script("""
    import os
    def main(rank):
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        model = DDP(net, device_ids=[rank])   # wrap
        for batch in loader:   # loop
            if rank == 1:
                model.module.fc.weight.data.mul_(2)   # edit
            loss = model(batch)   # step
            loss.backward()
            if bad(batch):
                return   # return
        barrier()   # barrier
""")
LINES = tuple(SCRIPT.at(mark) for mark in ("wrap", "loop", "edit", "step", "return", "barrier"))
SOURCES = (SCRIPT.text, "", "def main(:\n", "\0", "x = " + "(" * 500, "# rank\n" * 50, "if rank:\n pass", "é" * 100)
JUNK = (
    None, True, False, 0, -1, 3, 10**30, -(10**30), 0.5, math.nan, math.inf, -math.inf, "", "rank", "1", "[0]", "é" * 300,
    [], [None], [0, "1", [2]], ["fc.weight"], [[[]]], {}, {"a": [1]}, {"file": "x", "line": 3}, [math.nan], ["a"] * 50,
)  # fmt: skip
OPS = ("all_reduce", "broadcast", "barrier", "all_to_all", "gather", "allgather", "no such operation", "")
EVENTS = (
    "state loaded", "comm hook", "sync batchnorm", "optimizer", "parameters replaced", "checkpoint read", "environment",
    "threads", "loader", "dataset", "sampler", "data loop", "join", "model wrapped", "new_group", "init_process_group",
    "destroy_process_group", "used after fork", "buffers synced", "store", "device", "something new", "",
)  # fmt: skip


class Chance(random.Random):
    """Random decisions, by name."""

    def one(self, values):
        return self.choice(tuple(values))

    def often(self, share=0.5):
        return self.random() < share

    def some(self, values, share=0.7):
        return tuple(one for one in values if self.often(share))


# -- sound recordings of all kinds


def sound(chance):
    world = chance.randint(1, 5)
    odd = chance.randrange(world)
    kind = chance.one((trains, trains, collects, begins, ends, by_hand, wraps_oddly))
    ranks = [kind(Rank(number, world), number == odd, chance) for number in range(world)]
    return record(*ranks, script=SCRIPT, cores=8, shm_free=chance.one((1, 1 << 40)), shm_total=1 << 41, oom_kills=1)


def trains(rank, odd, chance):
    at = SCRIPT.at("step")
    rank.environment(MASTER_ADDR="127.0.0.1", NCCL_BLOCKING_WAIT="1").loader(SCRIPT.at("loop"), num_workers=2)
    rank.wraps(*chance.one(((), NORMED, (tensor("wide", (50_000,)),))), at=SCRIPT.at("wrap")).optimizes(at)
    for turn in range(4):
        bad = odd and turn == 2
        rank.calls("broadcast", at, root=0).forward(at, sync=0.0 if bad else 1.0)
        rank.calls("all_reduce", at).backward(at, loss=math.nan if bad else 1.0, factors=(2.0,), unused=["fc.bias"])
        rank.clips(3.0 + rank.rank, at).scales(2.0 ** (rank.rank if bad else 1), at)
        rank.gradients(at, odd={"fc.weight": 5} if bad else None, lr=0.2 if bad else 0.1).updated(at)
    if odd:
        rank.reads_checkpoint(at).loads("model", at).loads("optimizer").loads("scaler").drifts({"fc.weight": 9})
    return stops(rank.trains(2, at), odd, chance)


def by_hand(rank, odd, chance):
    rank.adopts(sharded=chance.often(0.2))
    for turn in range(4):
        if odd and turn == 3:
            rank.drifts({"fc.bias": 4})
        rank.backward().calls("all_reduce", line(4)).gradients(outstanding=float(odd)).updated()
    return stops(rank, odd, chance)


def wraps_oddly(rank, odd, chance):
    rank.converts(2).wraps(*(NORMED if odd else NET)).hooks("fp16" if odd else "none").replaces("head")
    return stops(rank.optimizes(copies=odd, missing=["fc.weight"], strangers=2), odd, chance)


def collects(rank, odd, chance):
    pair, members = group(0, 1), chance.one((None, group(0, 1)))
    for _ in range(chance.randint(0, 6)):
        rank.calls(chance.one(OPS), chance.one(LINES), group=members, thread=chance.randint(7, 8), root=0)
        rank.sends((rank.rank + 1) % 4, chance.one(LINES)).receives(0).issues("all_reduce", line(5), group=pair)
    return stops(rank, odd, chance)


def begins(rank, odd, chance):
    if chance.often():
        return rank.starts(line(4), rank=0 if odd else rank.rank, address="a:1" if odd else "b:1", asked="nccl")
    rank.joined(timeout_s=60.0, threads=64, torch="2.13.0" if odd else "2.12.0")
    return rank.makes_group([0, 1] if odd else [0, 1, 2], line(6), state=chance.one(("open", "done")))


def ends(rank, odd, chance):
    rank.calls("all_reduce", line(5), state=chance.one(CallState))
    if odd:
        return chance.one((rank.dies, rank.exits))(chance.one((-9, -11, 0, 3)))
    return rank.raises("RuntimeError", "Connection closed by peer", line(5), TORCH_FRAME)


def stops(rank, odd, chance):
    how = chance.randrange(6)
    if how == 0:
        return rank.finishes()
    if how == 1:
        return rank.waits("barrier" if odd else "all_reduce", SCRIPT.at("barrier"))
    if how == 2:
        return rank.idles(60.0, line(8), waits_on="a lock")
    if how == 3:
        return rank.raises("ValueError", "bad batch", SCRIPT.at("return"))
    return rank.computes(line(8)) if how == 4 else rank.stops(60.0, line(8))


# -- and what becomes of them


def mutilated(taken, chance):
    ranks = {rank: ruined(one, chance) for rank, one in taken.ranks.items() if chance.often(0.85)}
    sources = chance.one((taken.sources, {}, {FILE: chance.one(SOURCES)}))
    host = {name: chance.one(JUNK) if chance.often(0.3) else value for name, value in taken.host.items()}
    size = chance.one((taken.world_size, len(ranks), 0, 1, 64))
    return replace(taken, world_size=size, ranks=ranks, sources=sources, host=host)


def ruined(one, chance):
    shift = chance.one((0, 0, -3 * HOUR, 9 * HOUR))
    calls = [call(made, chance, shift) for made in chance.some(one.calls, 0.9)]
    history = [event(made, chance, shift) for made in chance.some(one.history, 0.9)]
    samples = [sample(made, chance, shift) for made in chance.some(one.samples, 0.85)]
    for some in (calls, history, samples):
        if chance.often(0.1):
            chance.shuffle(some)
    return replace(
        one,
        pid=chance.one((one.pid, 0, -1)),
        calls=tuple(calls),
        history=tuple(history),
        samples=tuple(samples),
        models=tuple(model(made, chance) for made in chance.some(one.models, 0.9)),
        stacks=chance.one((one.stacks, (), (Stack("x", ()),), (Stack("x", (frame(chance),) * 3, main=True),))),
        process=process(one.process, chance),
        ending=ending(one.ending, chance),
        forgotten=chance.one((0, 0, 7, 1 << 40)),
        children=chance.one((one.children, (), (Child(1, "", "Z"), Child(2, "python", "?", math.nan, one.stacks)))),
        output=chance.one((one.output, "", "gai error", "Traceback (most recent call last):\n" * 5)),
    )


def facts(known, chance):
    found = {}
    for name, value in known.items():
        if chance.often(0.06):
            continue
        keeps = name in ("line", "file") or not chance.often(0.12)
        found[name] = value if keeps else chance.one(JUNK)
    if chance.often(0.05):
        found["something new"] = chance.one(JUNK)
    return found


def facts_of(event):
    """Every fact that an event of its kind can have."""
    return {**dict.fromkeys(known.key for known in fields_of(type(event))), **written(event)}


def again(event, facts):
    return read(event.title, facts, event.state, event.began_ns, event.ended_ns)


def event(made, chance, shift):
    title = made.title if chance.often(0.95) else chance.one(EVENTS)
    state = made.state if chance.often(0.95) else chance.one(("open", "done", "failed", "?"))
    return read(title, facts(facts_of(made), chance), state, made.began_ns + shift, made.ended_ns + shift)


def sample(made, chance, shift):
    digests = {name: one for name, one in made.digests.items() if chance.often(0.95)}
    if chance.often(0.05):
        digests["nobody[0:7]"] = Digest(1, math.nan)
    return replace(
        made,
        model=made.model if chance.often(0.97) else 7,
        kind=made.kind if chance.often(0.97) else chance.one(("scale", "forward", "no such kind", "")),
        turn=made.turn + (0 if chance.often(0.95) else chance.randint(-3, 3)),
        step=made.step + (0 if chance.often(0.97) else chance.randint(-3, 3)),
        at_ns=made.at_ns + shift,
        site=place(made.site, chance),
        facts=facts(made.facts, chance),
        digests=digests,
    )


def model(made, chance):
    return replace(
        made,
        number=made.number if chance.often(0.95) else chance.randint(-1, 2),
        wrapper=made.wrapper if chance.often(0.95) else "",
        group=made.group if chance.often(0.95) else "nobody#0",
        ranks=made.ranks if chance.often(0.95) else (),
        tensors=made.tensors if chance.often(0.9) else chance.one(((), made.tensors[:1], (tensor("", (0,)),) * 2)),
        options=facts(made.options, chance),
        site=place(made.site, chance),
    )


def call(made, chance, shift):
    if chance.often(0.85):
        return replace(made, entered_ns=made.entered_ns + shift)
    members = (made.group, Group(()), Group((0,)), Group((5, 9), 3), Group((0, 0, 1)))
    return replace(
        made,
        number=chance.one((made.number, 0, 1 << 40)),
        group=chance.one(members),
        seq=chance.one((made.seq, 0, made.seq + 1, made.seq + 5, 1 << 40)),
        signature=chance.one((made.signature, Signature(chance.one(OPS)), Signature("broadcast", root=99, agreed="x"))),
        site=place(made.site, chance),
        state=chance.one(CallState),
        thread=chance.one((made.thread, 0)),
        peer=chance.one((made.peer, -1, 0, 99)),
        tag=chance.one((made.tag, -5)),
        done_ns=chance.one((made.done_ns, 0, -HOUR)),
        turn=chance.one((made.turn, 0, 99)),
    )


def place(known, chance):
    return known if chance.often(0.9) else chance.one((NO_SITE, Site("", -1, ""), Site(FILE, 10**9, "f", "x:y:z")))


def frame(chance):
    return Frame(
        chance.one((FILE, "", "/x/torch/nn/parallel/distributed.py")),
        chance.randint(-1, 30),
        "backward",
        chance.often(),
    )


def process(known, chance):
    if chance.often(0.8):
        return known
    activity = chance.one(("computing", "idle", "stopped", "gone", "unknown", "?"))
    return Process(
        activity, chance.one((0.0, 60.0, -1.0, math.nan, math.inf)), chance.one((None, 1.0, math.nan)), still_s=9.0
    )


def ending(known, chance):
    if chance.often(0.85):
        return known
    how = chance.one(("finished", "raised", "exited", "died", "?"))
    message = chance.one(("", "x" * 5000, "Timed out waiting 3ms", "gloo/transport/tcp closed", "\n\n"))
    frames = chance.one(((), (frame(chance),)))
    return chance.one(
        (None, Ending(how, chance.one((0, 1, -9, -999, 10**9)), chance.one(("", "RuntimeError")), message, frames))
    )


def is_diagnosis(found):
    assert isinstance(found, Diagnosis)
    assert found.outcome in ("ok", "hang", "crash", "divergence")
    for one in found.findings:
        assert one.name != "unknown"
        assert one.summary
    json.dumps(found.to_json())
    return True


@pytest.mark.parametrize("part", range(10))
def test_mutilated_recordings_have_a_diagnosis(part):
    for seed in range(50 * part, 50 * (part + 1)):
        chance = Chance(seed)
        taken = mutilated(sound(chance), chance)
        try:
            assert is_diagnosis(diagnose(taken, chance.one((10.0, 0.0, 1e9))))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


def test_sound_recordings_have_one_too():
    """Otherwise the mutilated ones would prove little: most of them say something, and all of them in time."""
    found = []
    for seed in range(60):
        taken = diagnose(sound(Chance(seed)))
        assert is_diagnosis(taken)
        found += [one.code for one in taken.findings]
    assert len(set(found)) >= 15, sorted(set(found))


# -- the plain cases, by name


def test_no_ranks():
    for size in (0, 1, 64):
        assert is_diagnosis(diagnose(Recording(size, {})))


def test_ranks_of_which_nothing_is_known():
    assert is_diagnosis(diagnose(Recording(4, {rank: RankRecord(rank) for rank in (0, 3)})))


def test_ranks_that_are_numbered_as_they_like():
    taken = record(Rank(0, 2).waits("all_reduce", line(5)), Rank(1, 2).finishes())
    odd = {1_000_000: replace(taken.ranks[0], rank=1_000_000), 7: replace(taken.ranks[1], rank=7)}
    assert is_diagnosis(diagnose(replace(taken, ranks=odd)))


def test_clocks_that_disagree_by_hours_change_no_verdict():
    """A rank's times are its own host's: what is said must not hang on comparing them."""
    for odd in range(3):
        ranks = [Rank(n, 3).wraps().trains(2, line(9)).calls("all_reduce", line(5)) for n in range(3)]
        ranks[odd].drifts({"fc.weight": 9})
        taken = record(*(rank.trains(2, line(9)).finishes() for rank in ranks))
        usual = diagnose(taken)
        for shift in (-5 * HOUR, 7 * HOUR):
            moved = {**taken.ranks, 0: shifted(taken.ranks[0], shift)}
            assert diagnose(replace(taken, ranks=moved)).to_json() == usual.to_json()


def shifted(one, by):
    return replace(
        one,
        calls=tuple(replace(c, entered_ns=c.entered_ns + by, issued_ns=c.issued_ns + by, done_ns=c.done_ns + by) for c in one.calls),
        history=tuple(replace(e, began_ns=e.began_ns + by, ended_ns=e.ended_ns + by) for e in one.history),
        samples=tuple(replace(s, at_ns=s.at_ns + by) for s in one.samples),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["", "no such kind", "pad"])
def test_samples_of_unknown_kinds_are_left_out(kind):
    taken = record(*(Rank(n, 2).wraps().trains(2).sample(kind, odd={"fc.weight": n}).finishes() for n in range(2)))
    assert diagnose(taken).findings == ()


@pytest.mark.parametrize("value", JUNK, ids=lambda value: repr(value)[:20])
def test_facts_that_are_anything(value):
    """Every fact of every sample and event of one rank is the same junk."""
    for seed in range(2):
        chance = Chance(seed)
        taken = record(*(trains(Rank(n, 3), n == 1, chance) for n in range(3)), script=SCRIPT)
        one = taken.ranks[1]
        places = ("line", "file", "function")
        spoilt = replace(
            one,
            samples=tuple(replace(s, facts=dict.fromkeys(s.facts, value)) for s in one.samples),
            history=tuple(
                again(e, {k: v if k in places else value for k, v in facts_of(e).items()}) for e in one.history
            ),
        )
        assert is_diagnosis(diagnose(replace(taken, ranks={**taken.ranks, 1: spoilt})))
        everybody = {rank: replace(spoilt, rank=rank) for rank in taken.ranks}
        assert is_diagnosis(diagnose(replace(taken, ranks=everybody)))


def test_models_without_tensors():
    ranks = [Rank(n, 2).wraps(state="open") for n in range(2)]
    taken = record(*ranks)
    bare = {rank: replace(one, models=(replace(one.models[0], tensors=()),)) for rank, one in taken.ranks.items()}
    assert is_diagnosis(diagnose(replace(taken, ranks=bare)))
    assert is_diagnosis(diagnose(replace(taken, ranks={**taken.ranks, 1: bare[1]})))


def test_groups_that_nobody_described():
    ranks = [Rank(n, 2).waits("all_reduce", line(5), group=Group(())) for n in range(2)]
    assert is_diagnosis(diagnose(record(*ranks)))
    strangers = [Rank(n, 2).waits("all_reduce", line(5), group=group(7, 8, 9)) for n in range(2)]
    assert is_diagnosis(diagnose(record(*strangers)))


def test_gaps_in_the_turns_of_samples():
    ranks = []
    for number in range(3):
        rank = Rank(number, 3).wraps().trains(12, line(9))
        rank._samples = [one for one in rank._samples if (one.turn + number) % 3]
        ranks.append(rank.finishes())
    assert diagnose(record(*ranks)).findings == ()


@pytest.mark.parametrize("value", JUNK, ids=lambda value: repr(value)[:20])
def test_lines_that_are_anything(value):
    """The places of events and models come from ranks as well."""
    for seed in range(2):
        chance = Chance(seed)
        ranks = (*(trains(Rank(n, 3), n == 1, chance) for n in range(3)), begins(Rank(3, 3), True, chance))
        taken = record(*ranks, script=SCRIPT)
        spoilt = {rank: places_are(one, value) for rank, one in taken.ranks.items()}
        assert is_diagnosis(diagnose(replace(taken, ranks=spoilt)))


def places_are(one, value):
    names = ("file", "line", "function")
    history = (again(e, {k: value if k in names else v for k, v in facts_of(e).items()}) for e in one.history)
    return replace(one, history=tuple(history))


@pytest.mark.parametrize(
    "terms",
    [3, 600, 9000],
)
def test_conditions_of_a_great_many_terms(terms):
    """Python parses what its own printer of syntax trees gives up on."""
    script = Script(f"""
        def main(rank):
            if {"rank + " * terms}1:
                barrier()   # barrier
    """)
    ranks = (Rank(0, 2).waits("barrier", script.at("barrier")), Rank(1, 2).finishes())
    (found,) = diagnose(record(*ranks, script=script)).findings
    assert (found.code, found.culprits) == ("DDP301", (1,))
