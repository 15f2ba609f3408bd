"""The same stop under its most telling name, and under no other one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import CallState
from ddpnb.recording.findings import Finding
from ddpnb.recording.stacks import Frame
from ddpnb.rules.finding_types import type_of
from tests.rules.recordings import FILE, TORCH_FRAME, Rank, Script, diagnose, line, record, refined, signature
from tests.rules.training import NET, tensor

WRAPPED, STEP = line(3), line(9)
TORCH = "/venv/lib/torch/"
DDP = Frame(TORCH + "nn/parallel/distributed.py", 1600, "_sync_buffers", user=False)
AUTOGRAD = Frame(TORCH + "autograd/__init__.py", 350, "backward", user=False)
CLOSED = "[gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:4242"


def first(recording):
    """The first finding, which must be an error that stopped the run."""
    found = diagnose(recording)
    assert found.errors
    assert not set(found.findings[0].culprits) & set(found.findings[0].waiting)
    return found.findings[0]


def user(site):
    return Frame(site.file, site.line, site.function)


def inside(rank, at, *above, op="all_reduce", **more):
    """Waits in a collective that was called from within these frames."""
    rank.waits(op, at, **more)
    return rank.has_stack(user(at), *above, TORCH_FRAME)


# -- names that nobody knows


def test_what_no_rule_is_for_stays_as_it_is():
    taken = record(Rank(0, 2).finishes(), Rank(1, 2).finishes())
    for code in ("DDP302", "DDP301", "DDP312", "DDP313", "DDP311", "DDP102"):
        finding = Finding(type_of(code), "x", (0,), (1,))
        assert refined(taken, finding) is finding


def test_ranks_that_are_in_no_recording_harm_nobody():
    taken = record(Rank(0, 2).waits("all_reduce", STEP))
    for code in ("DDP302", "DDP301", "DDP308", "DDP313", "DDP314", "DDP102", "DDP104", "DDP108"):
        assert refined(taken, Finding(type_of(code), "x", (7,), (0,))).code == code


# -- mismatches: DDP403, DDP404, DDP416, DDP310


def wrapping_now(rank, tensors, shape):
    rank.wraps(*tensors, at=WRAPPED, state="open")
    return rank.calls("broadcast", WRAPPED, state=CallState.FENCED, shape=shape, root=0).raises(
        "CollectiveMismatch", "broadcast", WRAPPED, DDP
    )


COUNTS = "DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has inconsistent {} params."
SIZES = "{}params[0] in this process with sizes [7, 8] appears not to match sizes of the same param in process 0."


def of_counts(*counts):
    """Each rank raises, and compares itself with the first that differs from it."""
    ranks = [Rank(n, len(counts)) for n in range(len(counts))]
    for rank, own in zip(ranks, counts, strict=True):
        other = next(n for n, count in enumerate(counts) if count != own)
        rank.raises("RuntimeError", COUNTS.format(rank.rank, own, other, counts[other]), WRAPPED)
    return ranks


def of_sizes(world, *odd, label=True):
    """Those that differ from rank 0 raise, the others wait."""
    raises = lambda n: Rank(n, world).raises("RuntimeError", SIZES.format(f"[{n}]: " * label), WRAPPED)  # noqa: E731
    return [raises(n) if n in odd else Rank(n, world).waits("broadcast", WRAPPED) for n in range(world)]


@pytest.mark.parametrize(
    ("ranks", "culprits", "sides"),
    [
        (of_counts(6, 7), (), ((0,), (1,))),
        (of_counts(6, 7)[1:], (), ((0,), (1,))),
        (of_counts(6, 6, 7), (2,), ()),
        (of_counts(7, 6, 6), (0,), ()),
        (of_counts(6, 6, 7)[1:], (2,), ()),
        (of_counts(6, 6, 7, 7), (), ((0, 1), (2, 3))),
        (of_sizes(2, 1), (), ((0,), (1,))),
        (of_sizes(2, 1, label=False), (), ((0,), (1,))),
        (of_sizes(2, 1)[1:], (), ((0,), (1,))),
        (of_sizes(3, 1, label=False), (1,), ()),
        (of_sizes(3, 1, 2), (0,), ()),
        (of_sizes(4, 1, 3), (), ((0, 2), (1, 3))),
    ],
)  # fmt: skip
def test_a_message_that_compares_ranks_blames_those_outside_of_the_majority(ranks, culprits, sides):
    taken = record(*ranks, world_size=ranks[0].world)
    (one,) = diagnose(taken).findings[:1]
    assert (one.code, one.certainty, one.culprits, one.sides) == ("DDP403", "proven", culprits, sides)
    assert set(one.waiting).isdisjoint(rank for side in sides for rank in side)


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_mismatch_while_models_are_wrapped_is_told_by_the_models(culprit):
    tall = (tensor("fc.weight", (8,)), NET[1])
    taken = record(
        *(wrapping_now(Rank(n, 3), tall if n == culprit else NET, (8,) if n == culprit else (4,)) for n in range(3))
    )
    found = first(taken)
    assert (found.code, found.culprits, found.tensors) == ("DDP403", (culprit,), ("fc.weight",))
    assert found.waiting == tuple(n for n in range(3) if n != culprit)
    assert found.collective is not None


def test_a_mismatch_while_equal_models_are_wrapped_is_what_it_was():
    taken = record(*(wrapping_now(Rank(n, 3), NET, (8,) if n == 1 else (4,)) for n in range(3)))
    assert (first(taken).code, first(taken).culprits) == ("DDP303", (1,))


def test_a_mismatch_long_after_the_models_were_wrapped_is_no_matter_of_theirs():
    """Other names for the same shapes, say, or models that were forgiven."""
    ranks = []
    for number in range(3):
        rank = Rank(number, 3).wraps(*(NET if number else (NET[1], NET[0])), at=WRAPPED)
        rank.calls("all_reduce", STEP, state=CallState.FENCED, shape=(8,) if number == 1 else (4,))
        ranks.append(rank.raises("CollectiveMismatch", "all_reduce", STEP))
    assert first(record(*ranks)).code == "DDP303"


@pytest.mark.parametrize("culprit", [0, 2])
def test_a_mismatch_in_backward_is_told_by_hooks_that_differ(culprit):
    ranks = []
    for number in range(3):
        rank = Rank(number, 3).wraps(at=WRAPPED)
        if number == culprit:
            rank.hooks("fp16_compress_hook", line(5))
        dtype = "float16" if number == culprit else "float32"
        rank.calls("all_reduce", STEP, state=CallState.FENCED, dtype=dtype)
        ranks.append(rank.raises("CollectiveMismatch", "all_reduce", STEP, AUTOGRAD))
    found = first(record(*ranks))
    assert (found.code, found.culprits) == ("DDP416", (culprit,))
    assert dict(found.where)[culprit] == line(5)


def test_a_mismatch_of_two_threads():
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).calls("all_reduce", line(5), state=CallState.ISSUED, thread=99)
        other = "barrier" if number else "all_reduce"
        rank.calls(other, line(6), state=CallState.FENCED).raises("CollectiveMismatch", other, line(6))
        ranks.append(rank)
    found = first(record(*ranks))
    assert (found.code, found.severity, found.culprits) == ("DDP310", "error", (0, 1))


# -- DDP407, DDP408: gradients that a rank does not send


def steps(rank, at=STEP):
    return rank.wraps(at=WRAPPED).trains(2, at)


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("code", ["DDP407", "DDP408"])
def test_others_wait_in_backward_for_a_rank_that_does_not_synchronise(culprit, code):
    ranks = []
    for number in range(3):
        rank = steps(Rank(number, 3))
        if number != culprit:
            inside(rank.forward(STEP).backward(STEP).gradients(STEP).updated(STEP), STEP, AUTOGRAD)
        else:
            if code == "DDP408":
                rank.forward(STEP, sync=0.0)
            rank.backward(STEP).gradients(STEP).updated(STEP).finishes()
        ranks.append(rank)
    found = first(record(*ranks))
    assert (found.code, found.culprits) == (code, (culprit,))
    assert found.collective is not None
    assert any("all_reduce" in text for text in found.evidence)


ONE_LOOP = Script("def main():\n    for x in loader:\n" + "        work()\n" * 12)


@pytest.mark.parametrize("size", [2, 3])
def test_the_rank_without_synchronisation_is_known_also_where_its_next_call_is_another(size):
    ranks = [steps(Rank(n, size)).forward(STEP, sync=float(n < size - 1)) for n in range(size)]
    for rank in ranks[:-1]:
        inside(rank, STEP, AUTOGRAD)
    ranks[-1].waits("barrier", line(12))
    found = first(record(*ranks, script=ONE_LOOP))
    assert (found.code, found.culprits, found.sides) == ("DDP408", (size - 1,), ())
    assert any("is in all_reduce" in text or "are in all_reduce" in text for text in found.evidence)


def test_a_function_of_the_users_own_is_no_backward():
    ranks = [steps(Rank(n, 3)).forward(STEP, sync=float(n < 2)) for n in range(3)]
    for rank in ranks[:-1]:
        rank.waits("all_reduce", STEP).has_stack(user(STEP), Frame(FILE, 20, "backward_hook"), TORCH_FRAME)
    ranks[-1].waits("barrier", line(12))
    assert first(record(*ranks, script=ONE_LOOP)).code == "DDP301"


def test_others_wait_in_backward_for_a_rank_that_left():
    ranks = [inside(steps(Rank(n, 3)), STEP, AUTOGRAD) for n in (0, 2)]
    found = first(record(ranks[0], steps(Rank(1, 3)).finishes(), ranks[1]))
    assert (found.code, found.culprits) == ("DDP301", (1,))


# -- DDP411: one rank alone in the model

EVALUATION = Script("""
    def train(model):
        for batch in loader:
            loss = model(batch)   # train
        if rank == 0:
            evaluate(model)
        dist.barrier()   # barrier


    def evaluate(model):
        return model(held_out)   # evaluate
""")


def trained(rank, script=EVALUATION):
    """Two steps whose collectives came from the training loop."""
    at = script.at("train", "train")
    for _ in range(2):
        rank.calls("broadcast", at, root=0).forward(at).calls("all_reduce", at).backward(at).gradients(at).updated(at)
    return rank


@pytest.mark.parametrize("lone", [0, 3])
def test_one_rank_evaluates_with_the_wrapped_model(lone):
    at = EVALUATION.at("evaluate", "evaluate")
    ranks = []
    for number in range(4):
        rank = trained(Rank(number).wraps(at=WRAPPED))
        ranks.append(inside(rank, at, DDP, op="broadcast", root=0) if number == lone else rank.finishes())
    found = first(record(*ranks, script=EVALUATION))
    assert (found.code, found.culprits) == ("DDP411", (lone,))
    assert found.waiting == tuple(n for n in range(4) if n != lone)
    assert dict(found.where)[lone] == at


def test_a_rank_that_returned_after_the_first_step_did_not_leave_the_other_one_alone():
    """Without buffers the first forward calls no collective; the second broadcasts the order of the buckets."""
    at = EVALUATION.at("train", "train")
    first_step = [Rank(n, 2).wraps(at=WRAPPED).forward(at) for n in range(2)]
    for rank in first_step:
        rank.calls("all_reduce", line(7)).backward(line(7)).updated(line(8)).has_run_forward(1)
    found = first(record(inside(first_step[0], at, DDP, op="broadcast", root=0), first_step[1].finishes()))
    assert (found.code, found.culprits, found.waiting) == ("DDP301", (1,), (0,))


def test_the_name_of_a_function_does_not_make_it_an_evaluation():
    """It waits in a backward, and has run the model as often as the others: they left out this backward."""
    at = EVALUATION.at("evaluate", "evaluate_sampled_log")
    ranks = [trained(Rank(n, 2).wraps(at=WRAPPED)).forward(at) for n in range(2)]
    found = first(record(inside(ranks[0], at, AUTOGRAD), ranks[1].finishes(), script=EVALUATION))
    assert (found.code, found.culprits, found.waiting) == ("DDP301", (1,), (0,))


def test_others_wait_at_a_barrier_meanwhile():
    at, barrier = EVALUATION.at("evaluate", "evaluate"), EVALUATION.at("barrier", "train")
    ranks = [inside(trained(Rank(0).wraps()), at, DDP, op="broadcast", root=0)]
    ranks += [trained(Rank(n).wraps()).waits("barrier", barrier) for n in (1, 2, 3)]
    found = first(record(*ranks, script=EVALUATION))
    assert found.code in ("DDP302", "DDP411")  # both calls have the same place in the sequence
    assert (found.culprits, found.waiting) == ((0,), (1, 2, 3))


def test_most_ranks_in_the_model_are_not_alone():
    at = EVALUATION.at("train", "train")
    ranks = [inside(trained(Rank(n).wraps()), at, DDP, op="broadcast", root=0) for n in (0, 1, 2)]
    found = first(record(*ranks, trained(Rank(3).wraps()).finishes(), script=EVALUATION))
    assert found.code == "DDP308"
    assert found.culprits == (3,)


def test_of_two_ranks_the_one_that_left_its_loop_is_to_blame_not_the_one_that_stays():
    """The rank that waits is one forward ahead, but from the line at which both were before."""
    script = Script("""
        def train(model):
            for batch in loader:
                if bad(batch):
                    return
                loss = model(batch)   # train
    """)
    at = script.at("train", "train")
    ranks = [Rank(n, 2).wraps() for n in range(2)]
    for rank in ranks:
        trained(rank, script)
    inside(ranks[0].forward(at), at, DDP, op="broadcast", root=0)
    found = first(record(ranks[0], ranks[1].finishes(), script=script))
    assert (found.code, found.culprits, found.waiting) == ("DDP301", (1,), (0,))


# -- DDP605: a sharded state

GATHERING = Frame(TORCH + "distributed/checkpoint/state_dict.py", 500, "_get_model_state_dict", user=False)


@pytest.mark.parametrize("lone", [0, 2])
def test_a_sharded_state_that_one_rank_gathers(lone):
    ranks = [
        inside(Rank(n), line(30), GATHERING, op="allgather") if n == lone else Rank(n).finishes() for n in range(4)
    ]
    found = first(record(*ranks))
    assert (found.code, found.culprits, found.certainty) == ("DDP605", (lone,), "likely")
    assert found.waiting == tuple(n for n in range(4) if n != lone)


def test_a_sharded_state_that_one_rank_does_not_gather():
    gathering = [inside(Rank(n), line(30), GATHERING, op="allgather") for n in range(3)]
    found = first(record(*gathering, Rank(3).finishes()))
    assert (found.code, found.culprits, found.waiting) == ("DDP605", (3,), (0, 1, 2))


def test_of_two_ranks_either_may_be_wrong_about_a_sharded_state():
    found = first(record(inside(Rank(0, 2), line(30), GATHERING, op="allgather"), Rank(1, 2).finishes()))
    assert (found.code, found.culprits, found.sides) == ("DDP605", (), ((0,), (1,)))
    assert len([text for text in found.evidence if text.startswith("No recorded fact")]) == 1


def test_a_distributed_checkpoint_of_a_model_that_is_not_sharded():
    saving = Frame(TORCH + "distributed/checkpoint/state_dict_saver.py", 300, "_save_state_dict", user=False)
    ranks = [inside(Rank(n), line(30), saving, op="allgather") if n == 0 else Rank(n).finishes() for n in range(3)]
    found = first(record(*ranks))
    assert (found.code, found.culprits) == ("DDP605", (0,))
    assert "saves a distributed checkpoint" in found.summary and "sharded" not in found.summary + found.remedy


def test_a_function_of_the_users_own_gathers_nothing_sharded():
    own = Frame("/home/user/torch/distributed/checkpoint/mine.py", 5, "gather_state_dict")
    ranks = [inside(Rank(n), line(30), own, op="allgather") if n == 0 else Rank(n).finishes() for n in range(2)]
    assert first(record(*ranks)).code == "DDP301"


# -- DDP109: forks


def blocked(rank, *frames, seconds=60.0):
    return rank.idles(seconds, line(8)).has_stack(user(line(8)), *frames)


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_child_that_uses_the_group_of_its_parent(culprit):
    ranks = [
        blocked(Rank(n, 3).event("used after fork", line(17))) if n == culprit else Rank(n, 3).waits("barrier", STEP)
        for n in range(3)
    ]
    found = first(record(*ranks))
    assert (found.code, found.culprits) == ("DDP109", (culprit,))
    assert dict(found.where)[culprit] == line(17)
    assert dict(found.where)[2] == STEP


def test_a_child_of_another_rank_is_not_the_reason():
    ranks = [blocked(Rank(0, 2)), Rank(1, 2).event("used after fork", line(17)).waits("barrier", STEP)]
    assert first(record(*ranks)).code == "DDP313"


# -- DDP702: loggers

WANDB = Frame("/venv/lib/python3.12/site-packages/wandb/sdk/wandb_init.py", 900, "init", user=False)
HUB = Frame("/venv/lib/python3.12/site-packages/huggingface_hub/file_download.py", 90, "hf_hub_download", user=False)
LOCK = Frame("/usr/lib/python3.12/threading.py", 300, "acquire", user=False)


@pytest.mark.parametrize("frame", [WANDB, HUB])
@pytest.mark.parametrize("culprits", [(0,), (1, 2)], ids=str)
def test_the_start_of_a_logger_or_a_download_that_hangs(frame, culprits):
    ranks = [blocked(Rank(n, 3), frame, LOCK) if n in culprits else Rank(n, 3).waits("barrier", STEP) for n in range(3)]
    found = first(record(*ranks))
    assert (found.code, found.culprits) == ("DDP702", culprits)
    assert found.waiting == tuple(n for n in range(3) if n not in culprits)


@pytest.mark.parametrize(
    "frames",
    [
        (LOCK,),
        (Frame(FILE, 8, "load_batch"), LOCK),
        (Frame("/home/user/experiment.py", 8, "load_batch"), LOCK),
        (Frame("/home/user/hub/downloads/train.py", 8, "main"), LOCK),
        (Frame("/home/user/catalog.py", 8, "claim"), LOCK),
        (Frame(FILE, 8, "run_experiment"), LOCK),
        (Frame("/usr/lib/python3.12/multiprocessing/resource_tracker.py", 70, "ensure_running", user=False), LOCK),
        (*(Frame(FILE, n, name) for n, name in enumerate(("download_and_train", "fit", "step", "read"))), LOCK),
    ],
    ids=[
        "a lock", "a batch", "a script called experiment.py", "a folder called hub", "a word in a word", "an experiment",
        "another tracker", "far outside",
    ],
)  # fmt: skip
def test_other_things_that_hang(frames):
    ranks = [blocked(Rank(0, 2), *frames), Rank(1, 2).waits("barrier", STEP)]
    found = first(record(*ranks))
    assert found.code == "DDP313" and "Possibly" not in str(found.evidence)


@pytest.mark.parametrize("name", ["setup_wandb", "download_dataset"])
def test_what_a_function_is_called_is_a_guess(name):
    ranks = [blocked(Rank(n, 3), Frame(FILE, 8, name if n else "work"), LOCK) for n in (0, 1)]
    found = first(record(*ranks, Rank(2, 3).waits("barrier", STEP)))
    assert (found.code, found.culprits) == ("DDP313", (0, 1))
    assert found.certainty == "timed"
    assert found.evidence[-1] == (
        f"Possibly the start of a logger or a download: rank 1 is in {name}(). Inferred from the function's name, not observed."
    )


def test_what_an_object_is_called_says_nothing():
    frame = Frame(FILE, 8, "start", locals={"self": "<train.WandbLogger object at 0x7f>"})
    found = first(record(blocked(Rank(0, 2), frame, LOCK), Rank(1, 2).waits("barrier", STEP)))
    assert found.code == "DDP313" and "Possibly" not in str(found.evidence)


# -- DDP706, DDP701: ends


def killed(code=-9, **host):
    ranks = [Rank(0, 2).dies(code), Rank(1, 2).waits("all_reduce", STEP)]
    return first(record(*ranks, **host))


def test_the_kernel_killed_it_for_want_of_memory():
    found = killed(oom_kills_before=3, oom_kills=4)
    assert (found.code, found.culprits, found.waiting) == ("DDP706", (0,), (1,))
    assert "was killed by the kernel" in found.summary


def test_where_only_kills_of_the_whole_machine_are_counted_it_is_one_of_those_perhaps():
    found = killed(oom_kills_anywhere_before=6, oom_kills_anywhere=8)
    assert (found.code, found.certainty) == ("DDP706", "likely")
    assert "perhaps by the kernel: this machine ran out of memory" in found.summary
    assert "The kernel counts 2 more out-of-memory kills on this machine than at the start." in found.evidence


@pytest.mark.parametrize(
    ("code", "host"),
    [
        (-9, {}),
        (-9, {"oom_kills_before": 4, "oom_kills": 4}),
        (-9, {"oom_kills": 4}),
        (-9, {"oom_kills_before": "3", "oom_kills": "4"}),
        (-11, {"oom_kills_before": 3, "oom_kills": 4}),
        (3, {"oom_kills_before": 3, "oom_kills": 4}),
        (-9, {"oom_kills_before": 4, "oom_kills": 4, "oom_kills_anywhere_before": 6, "oom_kills_anywhere": 7}),
    ],
    ids=["nothing known", "no new kill", "not known before", "nonsense", "another signal", "a status", "of others"],
)
def test_deaths_that_the_kernel_had_no_part_in(code, host):
    assert killed(code, **host).code == "DDP311"


# -- DDP103, DDP106: start-up that fails or never ends


def starting(rank, **facts):
    return rank.starts(line(4), **{"asked": "gloo", **facts})


def test_another_backend_is_why_they_do_not_meet():
    ranks = [starting(Rank(n, 3), address="a:1" if n else "b:1", asked="gloo" if n else "nccl") for n in range(3)]
    found = first(record(*ranks))
    assert (found.code, found.culprits, found.waiting) == ("DDP106", (0,), (1, 2))


def test_another_backend_of_a_group_is_why_it_is_not_made():
    ranks = [
        Rank(n, 3).makes_group([0, 1, 2], line(6), backend="nccl" if n == 2 else "gloo", state="open") for n in range(2)
    ]
    last = Rank(2, 3).makes_group([0, 1, 2], line(6), backend="nccl").finishes()
    found = first(record(*ranks, last))
    assert (found.code, found.culprits, found.waiting) == ("DDP106", (2,), (0, 1))


@pytest.mark.parametrize("culprit", [0, 1])
def test_two_processes_joined_as_one_rank_and_one_of_them_failed(culprit):
    claim = 1 - culprit
    ranks = [
        Rank(n, 3)
        .starts(line(4), rank=claim if n == culprit else n)
        .raises("RuntimeError", "rank is in use", line(4), TORCH_FRAME)
        for n in range(3)
    ]
    found = first(record(*ranks))
    assert (found.code, found.culprits) == ("DDP103", (culprit,))


# -- DDP312: what torch raised


def raising(exception, message, *above, make=lambda rank: rank, others=None):
    ranks = [make(Rank(0, 2)).raises(exception, message, STEP, *above)]
    ranks.append((others or (lambda rank: rank.waits("all_reduce", STEP)))(make(Rank(1, 2))))
    return first(record(*ranks))


@pytest.mark.parametrize("replaced", [False, True])
def test_what_torch_says_of_unused_parameters_is_told_by_their_names(replaced):
    message = (
        "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates "
        "that your module has parameters that were not used in producing loss. You can enable unused parameter "
        "detection by passing the keyword argument `find_unused_parameters=True`.\n"
        "Parameter indices which did not receive grad for rank 0: 1"
    )

    def make(rank):
        return rank.wraps(at=WRAPPED).replaces("fc.bias", at=STEP) if replaced else rank.wraps(at=WRAPPED)

    found = raising("RuntimeError", message, DDP, make=make)
    assert (found.code, found.culprits, found.tensors) == ("DDP401", (0,), ("fc.bias",))
    assert any("Replaced after wrapping: fc.bias" in text for text in found.evidence) == replaced
    assert found.remedy.startswith("Change the model first") == replaced


def converted_late(rank):
    return rank.wraps(at=WRAPPED).converts(2, line(6), wrapped=True)


def test_a_failure_inside_torch_of_a_model_that_was_set_up_wrongly():
    found = raising("RuntimeError", "Tensors must be contiguous", DDP, make=converted_late)
    assert (found.code, found.culprits, found.waiting) == ("DDP412", (0, 1), ())


def test_a_failure_of_the_users_own_is_not_hidden_by_a_model_that_was_set_up_wrongly():
    ranks = [
        converted_late(Rank(0, 2)).raises("ValueError", "bad batch", STEP),
        converted_late(Rank(1, 2)).waits("all_reduce", STEP),
    ]
    found = diagnose(record(*ranks)).findings
    assert (found[0].code, found[0].culprits) == ("DDP312", (0,))
    assert "DDP412" in [one.code for one in found]


def test_a_time_out_that_was_too_short_for_a_rank_that_computes():
    said = f"{CLOSED}\nTimed out waiting 3000ms for recv operation to complete"

    def make(number):
        rank = Rank(number, 2).joined(line(4), timeout_s=3.0)
        if number == 0:
            return rank.calls("all_reduce", STEP, state=CallState.FAILED).raises(
                "RuntimeError", said, STEP, TORCH_FRAME
            )
        return rank.computes(line(20))

    found = first(record(make(0), make(1)))
    assert (found.code, found.culprits) == ("DDP317", (0, 1))
    assert dict(found.where) == {0: line(4), 1: line(4)}


def test_a_time_out_that_fires_before_anybody_could_be_called_stuck():
    """The others sleep, which they may: nobody has waited as long as patience says."""

    def make(number, seconds=1.0):
        rank = Rank(number, 2).joined(line(4), timeout_s=seconds)
        said = f"Timed out waiting {seconds * 1000:.0f}ms for recv operation to complete"
        if number == 1:
            return rank.calls("barrier", STEP, state=CallState.FAILED).raises("RuntimeError", said, STEP, TORCH_FRAME)
        return rank.idles(seconds, line(20))

    found = first(record(make(0), make(1)))
    assert (found.code, found.culprits) == ("DDP317", (0, 1))
    assert "1 s" in found.summary and any("line 20" in text or ":20" in text for text in found.evidence)
    stuck = record(make(0, 30.0), make(1, 30.0))
    assert (first(stuck).code, first(stuck).culprits) == ("DDP313", (0,))
    assert diagnose(stuck, 60.0).errors[0].code == "DDP317"  # the user's patience is longer
    locked = Rank(0, 2).joined(line(4), timeout_s=1.0).idles(1.0, line(20), waits_on="a lock")
    stuck = first(record(locked, make(1)))
    assert (stuck.code, stuck.culprits) == ("DDP313", (0,))


def test_a_call_that_another_thread_is_about_to_make():
    save, smooth = line(30, "save"), line(40, "smooth")
    waits = Rank(0, 2).waits("broadcast", save)
    asleep = Rank(1, 2).waits("all_reduce", smooth)
    asleep.has_stack(Frame(FILE, 25, "run"), Frame(FILE, 29, "save"), thread=77)
    found = first(record(waits, asleep))
    assert (found.code, found.culprits, found.waiting) == ("DDP310", (1,), (0,))
    assert f"{FILE}:29" in found.evidence[0]
    elsewhere = Rank(1, 2).waits("all_reduce", smooth)
    elsewhere.has_stack(Frame(FILE, 25, "run"), Frame(FILE, 55, "log"), thread=77)
    assert first(record(Rank(0, 2).waits("broadcast", save), elsewhere)).code != "DDP310"


def test_of_two_ranks_with_two_threads_each_both_are_named():
    """The same two threads on both: that one side's came in the wrong order is not known."""
    ranks = []
    for number, (main, other) in enumerate(((3, 9), (9, 3))):
        rank = Rank(number, 2).calls("all_reduce", line(main, f"f{main}"), shape=(main,), state=CallState.FENCED)
        rank.idles(1.0, line(main, f"f{main}"))
        ranks.append(rank.has_stack(Frame(FILE, other, f"f{other}"), thread=9))
    found = first(record(*ranks))
    assert (found.code, found.culprits, found.waiting, found.sides) == ("DDP310", (0, 1), (), ())
    assert "order" not in found.summary


def test_an_address_of_an_earlier_start():
    said = "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, remote=[::1]:5"

    def failing(began, ended):
        rank = Rank(0, 2).absent().phase("init_process_group", "failed", line(4))
        rank._history[-1] = replace(rank._history[-1], began_ns=began, ended_ns=ended)
        return rank.raises("RuntimeError", said, line(4), TORCH_FRAME)

    late = Rank(1, 2).absent().idles(3.0, line(20))
    found = first(record(failing(10, 20), late))
    assert (found.code, found.culprits, found.waiting) == ("DDP105", (0,), (1,))
    there = Rank(1, 2).absent().starts(line(4))
    there._history[-1] = replace(there._history[-1], began_ns=15)
    assert first(record(failing(10, 20), there)).code != "DDP105"


@pytest.mark.parametrize(("died_s", "code"), [(1.7, "DDP105"), (0.05, "DDP311")])
def test_an_address_of_an_earlier_attempt_in_the_store_of_torchrun(died_s, code):
    """It ends the others with SIGTERM once one has failed; one that was ended first is the cause."""
    said = "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, remote=[::1]:5"
    rank = Rank(0, 2).absent().phase("init_process_group", "failed", line(4), attempts_before=1)
    rank._history[-1] = replace(rank._history[-1], began_ns=10, ended_ns=20)
    one = rank.raises("RuntimeError", said, line(4), TORCH_FRAME)
    other = Rank(1, 2).absent().starts(line(4))
    other._history[-1] = replace(other._history[-1], began_ns=15)
    taken = record(one, other.dies(-15))
    after = taken.ranks[0].ending.at_ns + int(died_s * 1e9)
    other = replace(taken.ranks[1], ending=replace(taken.ranks[1].ending, at_ns=after))
    found = first(replace(taken, ranks={**taken.ranks, 1: other}))
    assert found.code == code
    if code == "DDP105":
        assert (found.culprits, found.certainty) == ((0,), "likely")
        assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in found.remedy


# -- all of them leave the signature alone


def test_what_is_refined_keeps_its_collective():
    call = replace(record(Rank(0).waits("all_reduce", STEP)).ranks[0].calls[0], signature=signature("barrier"))
    taken = record(Rank(0, 2).waits("barrier", STEP), Rank(1, 2).finishes())
    finding = Finding(type_of("DDP301"), "x", (1,), (0,), call)
    assert refined(taken, finding).collective is call


@pytest.mark.parametrize("odd", [0, 1])
def test_a_wrapper_whose_calls_met_others(odd):
    """The number of parameters that torch read was the size of an object that the others gather."""
    script = Script("""
        def main():
            vocabulary = load()             # load
            model = DDP(Net(vocabulary))    # wrap

        def load():
            if cached():                    # check
                return read()               # read
            all_gather_object(parts, own)   # gather
    """)
    message = (
        "DDP expects same model across all ranks, but Rank 1 has 3 params, while rank 0 has inconsistent 126 params."
    )

    def make(number):
        rank = Rank(number, 3)
        if number == odd:
            rank.wraps(*NET, at=script.at("wrap"), state="failed")
            return rank.issues("all_gather", script.at("wrap"), shape=(1,)).raises(
                "RuntimeError", message, script.at("wrap")
            )
        gather = replace(script.at("gather", "load"), via=f"{script.file}:{script.line('load')}")
        rank.calls("all_gather", gather, shape=(1,))
        return rank.waits("all_gather", gather, shape=(126,))

    finding = diagnose(record(*map(make, range(3)), script=script)).findings[0]
    assert (finding.code, finding.culprits, finding.waiting) == (
        "DDP301",
        (odd,),
        tuple(rank for rank in range(3) if rank != odd),
    )
    assert "params" in finding.evidence[0]
