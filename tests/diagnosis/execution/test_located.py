"""Where culprits left the way of the others, by the lines that each rank executed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.diagnosis.execution.located import located
from ddpnb.model.calls import CallState
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.stacks import Frame
from tests.diagnosis.recordings import TORCH_FRAME, Rank, Script, diagnose, only_finding, record

SCRIPT = Script("""
    def main():
        for batch in loader:            # loop
            if not rank:                # mine
                print(batch)            # print
            loss = model(batch)         # forward
            if is_bad(loss):            # check
                print("bad")            # bad
                return                  # leave
            if is_old(loss):            # second
                continue                # again
            if is_best(loss):           # third
                break                   # break
            all_reduce(loss)            # reduce
        barrier()                       # barrier
""")
USUAL = "loop mine forward check second third reduce"  # a window ends where its call is made


def trains(rank: Rank, last: str, calls: int = 3) -> Rank:
    """Some iterations with a window each, in which rank 0 prints, then a window with these lines."""
    for _ in range(calls):
        rank.runs(SCRIPT, f"{USUAL} print" if rank.rank == 0 else USUAL).calls("all_reduce", SCRIPT.at("reduce"))
    return rank.runs(SCRIPT, last)


def waits(rank: Rank) -> Rank:
    return trains(rank, USUAL).waits("all_reduce", SCRIPT.at("reduce"), idle=5)


def places(finding, rank: int) -> list[int]:
    return [site.line for who, site in finding.where if who == rank]


def lines(*marks: str) -> list[int]:
    return [SCRIPT.line(mark) for mark in marks]


@pytest.mark.parametrize("world", [2, 3])
def test_a_return_that_one_rank_alone_ran(world):
    left = trains(Rank(1, world), "loop mine forward check bad leave").finishes()
    finding = only_finding(record(*(left if r == 1 else waits(Rank(r, world)) for r in range(world)), script=SCRIPT))
    assert (finding.code, finding.culprits) == ("DDP301", (1,))
    assert places(finding, 1) == lines("leave")
    assert finding.hint is None
    bad, leave = lines("bad", "leave")
    assert f"Since all_reduce #3 only rank 1 ran {SCRIPT.file}:{bad} and {SCRIPT.file}:{leave} (`return" in str(
        finding.evidence
    )


def test_a_break_leaves_the_loop_earlier():
    left = trains(Rank(1, 3), "loop mine forward check second third break barrier").finishes()
    finding = only_finding(record(waits(Rank(0, 3)), left, waits(Rank(2, 3)), script=SCRIPT))
    assert (finding.code, finding.culprits, places(finding, 1)) == ("DDP308", (1,), lines("break"))


def test_a_loop_that_ended_by_its_header():
    left = trains(Rank(1, 3), "loop barrier").finishes()
    finding = only_finding(record(waits(Rank(0, 3)), left, waits(Rank(2, 3)), script=SCRIPT))
    assert (finding.code, finding.culprits, places(finding, 1)) == ("DDP308", (1,), lines("loop"))
    assert "Rank 1 left the loop at" in str(finding.evidence)


def test_a_call_that_was_skipped_long_before_the_hang():
    skipped = Rank(2, 3).runs(SCRIPT, USUAL).calls("all_reduce", SCRIPT.at("reduce"))
    skipped.runs(SCRIPT, f"loop mine forward check second again {USUAL}").calls("all_reduce", SCRIPT.at("reduce"))
    skipped.runs(SCRIPT, USUAL).calls("all_reduce", SCRIPT.at("reduce"))
    skipped.runs(SCRIPT, "loop barrier").waits("barrier", SCRIPT.at("barrier"), idle=5)
    finding = only_finding(record(waits(Rank(0, 3)), waits(Rank(1, 3)), skipped, script=SCRIPT))
    assert (finding.code, finding.culprits) == ("DDP301", (2,))
    assert places(finding, 2) == lines("again", "barrier")
    assert f"Only rank 2 ran {SCRIPT.file}:{SCRIPT.line('again')} (`continue" in str(finding.evidence)


def test_of_two_ranks_the_one_that_left_its_way_by_a_new_jump():
    skipped = trains(Rank(0, 2), f"{USUAL.removesuffix(' third')} again loop barrier").waits(
        "barrier", SCRIPT.at("barrier"), idle=5
    )
    finding = only_finding(record(skipped, waits(Rank(1, 2)), script=SCRIPT))
    assert (finding.code, finding.culprits, finding.sides) == ("DDP301", (0,), ())
    assert finding.certainty == "likely"
    assert places(finding, 0) == lines("again", "barrier")


def test_what_a_rank_does_regularly_is_no_reason():
    """Rank 0 prints in each iteration, and now it alone has left the loop."""
    left = trains(Rank(0, 3), "loop barrier").finishes()
    finding = only_finding(record(left, waits(Rank(1, 3)), waits(Rank(2, 3)), script=SCRIPT))
    assert places(finding, 0) == lines("loop")
    assert str(SCRIPT.at("print")) not in str(finding)


def test_without_executed_lines_only_a_hint_remains():
    left = trains(Rank(1, 3), "loop mine forward check bad leave").finishes()
    recording = record(waits(Rank(0, 3)), left, waits(Rank(2, 3)), script=SCRIPT)
    for lost in (None, replace(recording.ranks[1].lines, dropped=1)):
        ranks = {**recording.ranks, 1: replace(recording.ranks[1], lines=lost)}
        finding = only_finding(replace(recording, ranks=ranks))
        assert SCRIPT.line("leave") not in places(finding, 1)
        assert "ran /" not in str(finding.evidence)


BRANCH = Script("""
    def main():
        for batch in loader:            # loop
            loss = model(batch)         # forward
            all_reduce(loss)            # reduce
            match role:                 # match
                case "leader":          # leader
                    barrier()           # barrier
                case _:                 # other
                    pass                # pass
""")


@pytest.mark.parametrize("world", [2, 3])
def test_a_branch_that_was_not_taken(world):
    def takes(rank: Rank) -> Rank:
        rank.runs(BRANCH, "loop forward reduce").calls("all_reduce", BRANCH.at("reduce"))
        return rank.runs(BRANCH, "match leader barrier").waits("barrier", BRANCH.at("barrier"), idle=5)

    other = Rank(world - 1, world).runs(BRANCH, "loop forward reduce").calls("all_reduce", BRANCH.at("reduce"))
    other.runs(BRANCH, "match leader other pass loop forward reduce").waits("all_reduce", BRANCH.at("reduce"), idle=5)
    finding = only_finding(record(*(takes(Rank(r, world)) for r in range(world - 1)), other, script=BRANCH))
    assert finding.code == "DDP301"
    assert places(finding, world - 1) == [BRANCH.line("match"), BRANCH.line("reduce")]
    assert f"Rank {world - 1} ran {BRANCH.file}:{BRANCH.line('match')} (`match role:" in str(finding.evidence)
    assert finding.sides == (((0,), (1,)) if world == 2 else ())


EDIT = Script("""
    def main():
        for batch in loader:            # loop
            if is_main():               # main
                scheduler.step()        # schedule
            if local == 1:              # mine
                lower(group)            # lower
            step(batch)                 # step

    def lower(group):
        group["lr"] = 0.5               # set
""")
DIFFERS = FindingType("DDP410", "optimizer-differs")


def edited(script: Script, *ranks: Rank, at: int, **more: object) -> Finding:
    """A finding about replicas that differ when each rank has begun its window with this number."""
    recording = record(*ranks, script=script)
    moments = tuple((rank, one.lines.windows[at - 1].began_ns + 1) for rank, one in recording.ranks.items())
    return located(recording, Finding(DIFFERS, "They differ.", moments=moments, **more))


def test_what_a_rank_alone_ran_before_replicas_were_seen_to_differ():
    usual = Rank(0, 2).runs(EDIT, "loop main mine step").runs(EDIT, "loop main mine step").runs(EDIT, "loop schedule")
    odd = Rank(1, 2).runs(EDIT, "loop main mine step").runs(EDIT, "loop main mine lower set step").runs(EDIT, "loop")
    finding = edited(EDIT, usual, odd, at=2, culprits=(1,), waiting=(0,))
    assert places(finding, 1) == [EDIT.line("lower"), EDIT.line("mine"), EDIT.line("set")]
    assert f"Only rank 1 ran {EDIT.file}:{EDIT.line('lower')} (`lower(group)" in finding.evidence[0]
    assert f"The others ran {EDIT.file}:{EDIT.line('mine')} (`if local == 1:" in finding.evidence[0]
    assert "schedule" not in str(finding), "it ran later"
    tie = edited(EDIT, usual, odd, at=2, sides=((0,), (1,)))
    assert (tie.culprits, places(tie, 0), places(tie, 1)) == ((), [EDIT.line("mine")], places(finding, 1))


def test_what_all_others_ran_before_replicas_were_seen_to_differ():
    usual = [Rank(r, 3).runs(EDIT, "loop main schedule mine step") for r in (0, 1)]
    finding = edited(EDIT, *usual, Rank(2, 3).runs(EDIT, "loop main mine step"), at=1, culprits=(2,), waiting=(0, 1))
    assert places(finding, 2) == [EDIT.line("main")]
    assert f"Rank 2 ran {EDIT.file}:{EDIT.line('main')} (`if is_main():" in finding.evidence[0]


def test_windows_that_are_no_longer_kept_say_nothing():
    odd = Rank(1, 2).runs(EDIT, "loop main mine lower set step").runs(EDIT, "loop main")
    recording = record(Rank(0, 2).runs(EDIT, "loop main").runs(EDIT, "loop main"), odd, script=EDIT)
    kept = {
        rank: replace(one, lines=replace(one.lines, windows=one.lines.windows[1:]))
        for rank, one in recording.ranks.items()
    }
    finding = Finding(DIFFERS, "They differ.", (1,), (0,), moments=((0, 10**9), (1, 10**9)))
    assert located(replace(recording, ranks=kept), finding) is finding


def test_what_a_rank_ran_in_that_step_after_the_replicas_were_seen_to_differ_is_no_reason():
    usual = Rank(0, 2).runs(EDIT, "loop main mine step")
    odd = Rank(1, 2).runs(EDIT, "loop main mine lower set step schedule")
    where = ((1, EDIT.at("step")), (0, EDIT.at("step")))
    finding = edited(EDIT, usual, odd, at=1, culprits=(1,), waiting=(0,), where=where)
    assert places(finding, 1) == [EDIT.line("lower"), EDIT.line("mine"), EDIT.line("set"), EDIT.line("step")]
    assert str(EDIT.line("schedule")) not in finding.evidence[0].split(":")
    usual = trains(Rank(0, 2), USUAL)
    odd = trains(Rank(1, 2), "loop mine forward check bad leave")
    where = ((1, SCRIPT.at("forward")), (0, SCRIPT.at("forward")))
    finding = edited(SCRIPT, usual, odd, at=4, culprits=(1,), waiting=(0,), where=where)
    assert not set(lines("bad", "leave")) & set(places(finding, 1)), "they follow from what was seen"


def test_a_handler_that_others_ran_only_after_their_call_was_refused():
    """They swallow what the refused call raises, as the culprit did before with another exception."""
    script = Script("""
        def summarize():
            try:                        # try
                table = matrix()        # matrix
                all_reduce(table)       # reduce
            except Exception:           # handler
                pass                    # ignore
            barrier()                   # barrier
    """)
    ranks = [Rank(r, 3).runs(script, "try matrix reduce").calls("all_reduce", script.at("reduce")) for r in (0, 1)]
    for rank in ranks:
        rank.runs(script, "try matrix reduce").waits("all_reduce", script.at("reduce"), idle=5)
        rank.runs(script, "handler ignore barrier")
    odd = Rank(2, 3).runs(script, "try matrix reduce").calls("all_reduce", script.at("reduce"))
    odd.runs(script, "try matrix handler ignore barrier").waits("barrier", script.at("barrier"), idle=5)
    raised = {"file": script.file, "line": script.line("matrix"), "function": "main"}
    for mark in ("handler", "ignore"):
        odd.event("exception handled", script.at(mark), exception="KeyError", raised=raised)
    finding = only_finding(record(*ranks, odd, script=script))
    assert places(finding, 2) == [script.line(mark) for mark in ("ignore", "matrix", "barrier")]
    assert f"There it handled KeyError, raised at {script.file}:{script.line('matrix')}" in str(finding.evidence)


GENERATOR = Script("""
    def main():
        for batch in read():            # loop
            all_reduce(batch)           # reduce
        barrier()                       # barrier

    def read():
        for file in files:              # files
            for row in rows(file):      # rows
                yield row               # yield
""")


def test_the_loops_inside_of_a_generator_that_ended():
    def reads(rank: Rank, last: str) -> Rank:
        for _ in range(2):
            rank.runs(GENERATOR, "loop read:files read:rows read:yield reduce").calls(
                "all_reduce", GENERATOR.at("reduce")
            )
        return rank.runs(GENERATOR, last)

    left = reads(Rank(1, 3), "loop read:rows read:files barrier").waits("barrier", GENERATOR.at("barrier"), idle=5)
    stay = [
        reads(Rank(r, 3), "loop read:rows read:yield reduce").waits("all_reduce", GENERATOR.at("reduce"), idle=5)
        for r in (0, 2)
    ]
    finding = only_finding(record(stay[0], left, stay[1], script=GENERATOR))
    assert (finding.code, finding.culprits) == ("DDP308", (1,))
    assert places(finding, 1) == [GENERATOR.line(mark) for mark in ("loop", "rows", "barrier")]
    assert f"Rank 1 also ran {GENERATOR.file}:{GENERATOR.line('rows')} (`for row" in str(finding.evidence)


def test_the_part_of_a_stage_of_a_pipeline_is_no_reason():
    script = Script("""
        def main():
            for batch in loader:            # loop
                receive(rank - 1)           # receive
                if not last:                # role
                    send(rank + 1)          # send
    """)
    ranks = [Rank(r, 2) for r in (0, 1)]
    for _ in range(2):
        ranks[0].runs(script, "loop role send").sends(1, script.at("send"))
        ranks[1].runs(script, "loop receive role").receives(0, script.at("receive"))
    ranks[0].runs(script, "loop role send").waits("send", script.at("send"), peer=1)
    ranks[1].runs(script, "loop role receive").waits("send", script.at("receive"), peer=0)
    finding = only_finding(record(*ranks, script=script))
    assert finding.code == "DDP307"
    assert "and then not" not in str(finding.evidence)


def test_a_jump_in_a_function_that_others_did_not_call():
    script = Script("""
        def main():
            if rank == 1:                   # mine
                model.calibrate()           # calibrate
            step()                          # step

        def forward(x):
            if collecting:                  # collecting
                observe(x)                  # observe
                return x                    # return
            return scale(x)                 # scale
    """)
    usual = Rank(0, 2).runs(script, "mine forward:collecting forward:scale step")
    odd = Rank(1, 2).runs(script, "mine calibrate forward:collecting forward:observe forward:return forward:scale step")
    finding = edited(script, usual, odd, at=1, culprits=(1,), waiting=(0,))
    assert places(finding, 1)[:2] == [script.line("calibrate"), script.line("mine")]


def test_the_jump_that_kept_the_others_from_what_one_rank_ran():
    script = Script("""
        def calibrate():
            if rank != leader:              # check
                return                      # leave
            net = model.module              # edit
            net.scale = 2                   # set
    """)
    usual, odd = Rank(0, 2).runs(script, "check leave"), Rank(1, 2).runs(script, "check edit set")
    finding = edited(script, usual, odd, at=1, culprits=(1,), waiting=(0,))
    assert places(finding, 1) == [script.line(mark) for mark in ("edit", "set")]
    assert f"The others ran {script.file}:{script.line('leave')} (`return " in finding.evidence[0]


def test_why_a_rank_did_not_make_a_group():
    script = Script("""
        def main():
            if not experts:                 # check
                return                      # leave
            new_group(members)              # inside

        def build():
            main()                          # call
            new_group(everybody)            # later
    """)
    usual = [
        Rank(r, 3)
        .runs(script, "build:call check inside build:later")
        .makes_group([0, 2], script.at("inside"))
        .makes_group([0, 1, 2], script.at("later", "build"), state="open")
        for r in (0, 2)
    ]
    odd = Rank(1, 3).runs(script, "build:call check leave build:later")
    odd.makes_group([0, 1, 2], script.at("later", "build"), state="open")
    finding = only_finding(record(usual[0], odd, usual[1], script=script))
    assert (finding.code, finding.culprits) == ("DDP108", (1,))
    assert places(finding, 1)[0] == script.line("leave")


def test_what_was_left_out_because_of_what_one_rank_alone_made():
    """From the beginning of the run to a loop: no look at the replicas shows such a finding."""
    script = Script("""
        def loader():
            if rank == 1:                   # check
                return Wrapped(data)        # wrap
            return Plain(data)              # plain

        def begin():
            if hasattr(loader, "sampler"):  # has
                loader.sampler.set_epoch()  # set
    """)
    usual = Rank(0, 2).runs(script, "check plain begin:has begin:set").sample("forward", script.at("plain"))
    odd = Rank(1, 2).runs(script, "check wrap begin:has").sample("forward", script.at("wrap"))
    recording = record(usual.runs(script, "check"), odd.runs(script, "check"), script=script)
    now = tuple((rank, one.lines.windows[1].began_ns) for rank, one in recording.ranks.items())
    finding = located(recording, Finding(DIFFERS, "They differ.", (1,), moments=now))
    assert places(finding, 1) == [script.line(mark) for mark in ("wrap", "has")]
    assert f"Rank 1 also ran {script.file}:{script.line('has')}" in finding.evidence[0]


def test_a_difference_that_shows_later_than_the_line_that_caused_it():
    """A scale that only one rank changes shows in the gradients one step later."""
    script = Script("""
        def main():
            for batch in loader:            # loop
                if loss > limit:            # check
                    scale = 0.5             # lower
                step(batch)                 # step
    """)
    ranks = []
    for number in (0, 1):
        rank = Rank(number, 2)
        for lines in ("loop check step", "loop check lower step" if number else "loop check step", "loop check step"):
            rank.runs(script, lines).sample("gradients", script.at("step"))
        ranks.append(rank)
    recording = record(*ranks, script=script)
    moments = tuple((rank, one.samples[-1].at_ns) for rank, one in recording.ranks.items())
    finding = located(recording, Finding(DIFFERS, "They differ.", (1,), (0,), moments=moments))
    assert places(finding, 1) == [script.line("lower"), script.line("check")]


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_that_left_its_loop_by_a_break(culprit):
    """Both might come to these calls again in the outer loop: without the lines it would be open who skipped one."""
    script = Script("""
        def main():
            while True:
                for batch in loader:        # loop
                    if enough:              # check
                        break               # leave
                    all_reduce(batch)       # reduce
                barrier()                   # barrier
    """)
    ranks = []
    for number in (0, 1):
        rank = Rank(number, 2)
        for _ in range(2):
            rank.runs(script, "loop check reduce").calls("all_reduce", script.at("reduce"))
        if number == culprit:
            rank.runs(script, "loop check leave barrier").waits("barrier", script.at("barrier"), idle=5)
        else:
            rank.runs(script, "loop check reduce").waits("all_reduce", script.at("reduce"), idle=5)
        ranks.append(rank)
    finding = only_finding(record(*ranks, script=script))
    assert (finding.code, finding.culprits, finding.sides) == ("DDP308", (culprit,), ())
    assert places(finding, culprit)[0] == script.line("leave")


def test_what_the_other_ran_a_moment_later_is_not_what_one_alone_ran():
    usual, odd = Rank(0, 2).runs(EDIT, "loop main mine step lower"), Rank(1, 2).runs(EDIT, "loop main mine lower step")
    where = ((1, EDIT.at("step")), (0, EDIT.at("step")))
    assert edited(EDIT, usual, odd, at=1, culprits=(1,), waiting=(0,), where=where).evidence == ()


NESTED = Script("""
    def main():
        for epoch in range(3):              # epochs
            for batch in loader:            # loop
                all_reduce(loss)            # reduce
            if empty(epoch):                # check
                continue                    # again
            reduce(metrics)                 # metrics
""")


def epoch(rank: Rank, batches: int = 2) -> Rank:
    for _ in range(batches):
        rank.runs(NESTED, "loop reduce").calls("all_reduce", NESTED.at("reduce"))
    return rank


def epochs(rank: Rank, last: str) -> Rank:
    """A whole epoch, and the batches of a second one, then a window with these lines."""
    epoch(rank).runs(NESTED, "loop check metrics").calls("reduce", NESTED.at("metrics")).runs(NESTED, "epochs")
    return epoch(rank).runs(NESTED, last)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("odd", [0, 1])
def test_a_rank_that_skipped_the_call_behind_its_loop_and_came_to_the_loop_again(world, odd):
    """It has made one call more in that loop: the others did not leave it early."""

    def make(number: int) -> Rank:
        rank = Rank(number, world)
        if number == odd:
            return epochs(rank, "loop check again epochs loop reduce").waits("all_reduce", NESTED.at("reduce"), idle=5)
        return epochs(rank, "loop check metrics").waits("reduce", NESTED.at("metrics"), idle=5)

    finding = only_finding(record(*map(make, range(world)), script=NESTED))
    assert (finding.code, finding.culprits, finding.sides) == ("DDP301", (odd,), ())
    assert NESTED.line("again") in places(finding, odd)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("odd", [0, 1])
def test_a_rank_that_left_such_a_loop_early(world, odd):
    def make(number: int) -> Rank:
        rank = Rank(number, world)
        if number == odd:
            return epochs(rank, "loop check metrics").waits("reduce", NESTED.at("metrics"), idle=5)
        return epochs(rank, "loop reduce").waits("all_reduce", NESTED.at("reduce"), idle=5)

    finding = only_finding(record(*map(make, range(world)), script=NESTED))
    assert (finding.code, finding.culprits, finding.sides) == ("DDP308", (odd,), ())
    assert finding.certainty == "proven"


def test_a_loop_after_which_one_rank_ran_a_line():
    """That it ran the header of the loop as well is nothing that it alone did."""
    script = Script("""
        def main():
            for hook in hooks:              # hooks
                hook.end()                  # end
            print(epoch)                    # print
            train()                         # train

        def gather(loss):
            all_gather(loss)                # gather
    """)
    one = Rank(0, 2).runs(script, "train").calls("all_reduce", script.at("train"))
    one.runs(script, "hooks end print train").waits("all_reduce", script.at("train"), idle=5)
    other = Rank(1, 2).runs(script, "train").calls("all_reduce", script.at("train"))
    other.runs(script, "hooks end gather:gather").waits("all_gather", script.at("gather", "gather"), idle=5)
    evidence = str(only_finding(record(one, other, script=script)).evidence)
    assert f"Only rank 0 ran {script.file}:{script.line('hooks')}" not in evidence


EPOCHS = Script("""
    def main():
        for epoch in range(3):          # epochs
            for batch in loader:        # loop
                all_reduce(batch)       # reduce
            if is_main(rank):           # mine
                score = evaluate()      # evaluate
                all_reduce(score)       # score
""")


@pytest.mark.parametrize("world", [2, 3])
def test_a_loop_that_all_ranks_left_is_no_reason(world):
    ranks = [
        Rank(r, world).runs(EPOCHS, "epochs loop reduce").calls("all_reduce", EPOCHS.at("reduce")) for r in range(world)
    ]
    for rank in ranks:
        if rank.rank:
            rank.runs(EPOCHS, "loop mine epochs reduce").waits("all_reduce", EPOCHS.at("reduce"), idle=5)
        else:
            rank.runs(EPOCHS, "loop mine evaluate score").waits("all_reduce", EPOCHS.at("score"), shape=(), idle=5)
    finding = only_finding(record(*ranks, script=EPOCHS))
    assert (finding.code, finding.culprits) == ("DDP301", (0,) if world == 3 else ())
    assert "left the loop" not in str(finding.evidence)
    assert EPOCHS.line("evaluate") in places(finding, 0)


RESUMES = Script("""
    def start():
        if exists(path):                # exists
            return load(path)           # load
        return 0                        # zero
    def main():
        step = start()                  # start
        while step < 8:                 # loop
            all_reduce(loss)            # reduce
        all_reduce(done)                # done
""")


def test_a_return_before_a_loop_skipped_no_call_in_it():
    """It changed how often the loop runs."""
    ranks = [Rank(0, 2), Rank(1, 2)]
    for rank, returned in zip(ranks, ("load", "zero"), strict=True):
        rank.runs(RESUMES, f"start start:exists start:{returned} loop reduce").calls("all_reduce", RESUMES.at("reduce"))
        rank.runs(RESUMES, "loop reduce").calls("all_reduce", RESUMES.at("reduce"))
    ranks[0].runs(RESUMES, "loop done").waits("all_reduce", RESUMES.at("done"), shape=(), idle=5)
    ranks[1].runs(RESUMES, "loop reduce").waits("all_reduce", RESUMES.at("reduce"), idle=5)
    finding = only_finding(record(*ranks, script=RESUMES))
    assert (finding.code, finding.culprits) == ("DDP308", (0,))


SHORT_CIRCUIT = Script("""
    def main():
        loss = model(batch)                     # forward
        stop = is_far(loss) and mean(loss) > 1  # both
        backward(loss)                          # backward

    def is_far(loss):
        return loss > 3                         # far

    def mean(loss):
        total = loss.clone()                    # clone
        all_reduce(total)                       # reduce
""")


@pytest.mark.parametrize("world", [2, 3])
def test_a_function_that_a_line_did_not_call_on_one_rank(world):
    """An `and` decides within its line, which all ranks run."""
    reduce = SHORT_CIRCUIT.at("reduce", "mean")

    def steps(rank: Rank) -> Rank:
        return rank.runs(SHORT_CIRCUIT, "forward both is_far:far backward").calls(
            "broadcast", SHORT_CIRCUIT.at("backward")
        )

    ranks = []
    for number in range(world - 1):
        rank = steps(Rank(number, world)).runs(SHORT_CIRCUIT, "forward both is_far:far mean:clone mean:reduce")
        rank.waits("all_reduce", reduce, idle=5)
        frames = [SHORT_CIRCUIT.at("both"), reduce]
        rank.has_stack(*(Frame(at.file, at.line, at.function) for at in frames), TORCH_FRAME)
        ranks.append(rank)
    odd = steps(Rank(world - 1, world)).runs(SHORT_CIRCUIT, "forward both is_far:far backward")
    odd.waits("broadcast", SHORT_CIRCUIT.at("backward"), idle=5)
    finding = only_finding(record(*ranks, odd, script=SHORT_CIRCUIT))
    assert finding.code == "DDP301"
    assert finding.culprits == ((world - 1,) if world > 2 else ())
    assert places(finding, world - 1)[0] == SHORT_CIRCUIT.line("both")


REDUCED_LATER = Script("""
    def main():
        fit()                           # fit

    def validate(batch):
        log(loss(batch))                # log
        if cracked(batch):              # check
            log(recall(batch))          # recall
""")


def test_a_line_that_one_rank_ran_once_where_nothing_else_differs():
    """What it logs leads to a call only at the end of the epoch, as all ranks are in one line of the user's code."""

    def fits(number: int, op: str) -> Rank:
        rank = Rank(number, 3).runs(REDUCED_LATER, "fit").calls("broadcast", REDUCED_LATER.at("fit"))
        for batch in range(3):
            rank.runs(
                REDUCED_LATER, f"validate:log validate:check{' validate:recall' * (op == 'barrier' and batch == 1)}"
            )
            rank.calls("all_reduce", REDUCED_LATER.at("fit"))
        return rank.calls(op, REDUCED_LATER.at("fit"), state=CallState.FENCED)

    ranks = [fits(number, "barrier" if number == 1 else "broadcast") for number in range(3)]
    finding = diagnose(record(*ranks, script=REDUCED_LATER)).findings[0]
    assert (finding.code, finding.culprits) == ("DDP302", (1,))
    assert places(finding, 1)[0] == REDUCED_LATER.line("recall")


def test_a_jump_from_before_the_loop_does_not_explain_its_end():
    """Rank 1 alone ran a `return` as it set itself up: the loop that it left is what happened since."""
    script = Script("""
        def main():
            settings()                  # set up
            for batch in loader:        # loop
                all_reduce(batch)       # reduce
            barrier()                   # barrier

        def settings():
            if few:                     # few
                return small            # small
            return large                # large
    """)

    def trains(number: int, batches: int) -> Rank:
        rank = Rank(number, 2).runs(
            script, f"set up settings:few settings:{'small' if number else 'large'}".replace("set up", "loop")
        )
        for _ in range(batches):
            rank.runs(script, "loop reduce").calls("all_reduce", script.at("reduce"))
        return rank

    one = trains(0, 3).runs(script, "loop reduce").waits("all_reduce", script.at("reduce"), idle=5)
    other = trains(1, 3).runs(script, "loop barrier").waits("barrier", script.at("barrier"), idle=5)
    finding = only_finding(record(one, other, script=script))
    assert (finding.code, finding.culprits) == ("DDP308", (1,))
    assert places(finding, 1)[0] == script.line("loop")
