"""Settings that contradict each other, or that somebody will regret; and those that are fine."""

from __future__ import annotations

import pytest

from ddpnb.diagnosis import settings
from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.model.findings import Hint
from tests.diagnosis.recordings import Rank, Script, line, record

INIT = line(4)
GIB = 1 << 30


def recorded(make, world=4, script=None, **host):
    """``make(rank)`` says how each rank was set up."""
    ranks = [Rank(number, world).joined(INIT, backend="gloo", asked="gloo") for number in range(world)]
    for rank in ranks:
        make(rank)
    return record(*(rank.finishes() for rank in ranks), script=script, **host)


def joined(**facts):
    return lambda rank: rank.joined(INIT, **{"backend": "gloo", "asked": "gloo", **facts})


def some(culprits, odd, usual=joined()):
    return lambda rank: odd(rank) if rank.rank in culprits else usual(rank)


def others(culprits, world=4):
    return tuple(number for number in range(world) if number not in culprits)


def the_finding(recording, stuck=frozenset()):
    (found,) = settings.find(recording, stuck)
    assert found.summary and found.remedy
    assert found.code in [one.code for one in diagnose(recording).findings]
    return found


def test_all_is_well():
    assert settings.find(recorded(lambda r: r, cores=8, shm_total=GIB, shm_free=GIB)) == []
    assert settings.find(record()) == []


# -- DDP106


@pytest.mark.parametrize("culprits", [(0,), (3,), (1, 2)], ids=str)
@pytest.mark.parametrize(("odd", "usual"), [("nccl", "gloo"), ("", "gloo"), ("gloo", "")])
def test_backends_that_differ(culprits, odd, usual):
    recording = recorded(some(culprits, joined(asked=odd), joined(asked=usual)), world=5)
    found = the_finding(recording)
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP106", "error", culprits, others(culprits, 5),
    )  # fmt: skip
    assert dict(found.where) == dict.fromkeys(range(5), INIT)
    assert "''" not in found.summary


def test_what_the_script_asks_for_counts_not_what_the_launcher_chose():
    assert settings.find(recorded(joined(asked="nccl", backend="gloo"))) == []
    assert the_finding(recorded(some((1,), joined(asked="nccl", backend="gloo")))).culprits == (1,)


def test_a_recording_that_knows_only_the_backend():
    def make(rank):
        rank.joined(INIT, backend="NCCL" if rank.rank == 2 else "gloo")

    assert the_finding(recorded(make)).culprits == (2,)


def test_capitals_make_no_other_backend():
    assert settings.find(recorded(some((1,), joined(asked="GLOO")))) == []


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_groups_with_other_backends(culprits):
    def make(rank):
        rank.makes_group([0, 1, 2, 3], line(6), backend="gloo").makes_group(
            [0, 1, 2, 3], line(7), backend="nccl" if rank.rank in culprits else "gloo"
        )

    found = the_finding(recorded(make))
    assert (found.code, found.culprits, found.waiting) == ("DDP106", culprits, others(culprits))
    assert dict(found.where) == dict.fromkeys(range(4), line(7))


def test_groups_are_not_compared_by_their_number_where_some_are_forgotten():
    def make(rank):
        if rank.rank:
            rank.makes_group([0, 1, 2, 3], line(6), backend="gloo")
        rank.makes_group([0, 1, 2, 3], line(7), backend="nccl").forgets_events(0 if rank.rank else 1)

    assert settings.find(recorded(make)) == []


def test_different_groups_may_have_different_backends():
    def make(rank):
        mine = [0, 1] if rank.rank < 2 else [2, 3]
        rank.makes_group(mine, backend="gloo" if rank.rank < 2 else "nccl", local=True)
        rank.makes_group([0, 1, 2, 3], backend="nccl")

    assert settings.find(recorded(make)) == []


# -- DDP107


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
@pytest.mark.parametrize(
    ("name", "odd", "usual"),
    [("torch", "2.12.0", "2.13.0"), ("cuda", "12.8", "13.0"), ("nccl", "2.27.3", "2.28.9"), ("python", "3.11.7", "3.12.1")],
)  # fmt: skip
def test_versions_that_differ(culprits, name, odd, usual):
    found = the_finding(recorded(some(culprits, joined(**{name: odd}), joined(**{name: usual}))))
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP107", "error", culprits, others(culprits),
    )  # fmt: skip
    assert odd in found.summary and usual in found.summary


def test_a_version_that_some_ranks_do_not_tell():
    assert settings.find(recorded(some((1,), joined(), joined(torch="2.13.0", nccl="2.28.9")))) == []
    assert settings.find(recorded(some((1,), joined(nccl=""), joined(nccl="2.28.9")))) == []


# -- DDP317


def test_a_group_that_does_not_inherit_the_time_out():
    found = the_finding(recorded(lambda r: joined(timeout_s=60.0)(r).makes_group([0, 1], line(8), timeout_s=None)))
    assert (found.code, found.severity, found.culprits) == ("DDP317", "note", (0, 1, 2, 3))
    assert found.where == tuple((number, line(8)) for number in range(4))
    assert "60 s" in found.summary and "30 minutes" in found.summary


def test_it_is_a_warning_where_ranks_are_stuck():
    recording = recorded(lambda r: joined(timeout_s=60.0)(r).makes_group([0, 1], line(8), timeout_s=None))
    assert the_finding(recording, frozenset({0})).severity == "warning"


@pytest.mark.parametrize(
    ("world", "made"),
    [
        ({"timeout_s": 60.0}, {"timeout_s": 60.0}),
        ({"timeout_s": None}, {"timeout_s": None}),
        ({"timeout_s": 1800.0}, {"timeout_s": None}),
        ({"timeout_s": 3600.0}, {"timeout_s": None}),
        ({"timeout_s": "60"}, {"timeout_s": None}),
    ],
    ids=["its own", "the default", "as long as the default", "longer", "nonsense"],
)
def test_time_outs_that_are_as_they_should_be(world, made):
    assert settings.find(recorded(lambda r: joined(**world)(r).makes_group([0, 1], **made))) == []


@pytest.mark.parametrize(("seconds", "words"), [(4 * 3600.0, "4 hours"), (14 * 24 * 3600.0, "336 hours")])
def test_a_time_out_of_many_hours(seconds, words):
    found = the_finding(recorded(some((1, 2), joined(timeout_s=seconds), joined(timeout_s=600.0))))
    assert (found.code, found.severity, found.culprits) == ("DDP317", "warning", (1, 2))
    assert words in found.summary


# -- DDP704


@pytest.mark.parametrize("threads", [{}, {"odd": 32}], ids=["each", "one alone"])
def test_more_threads_than_cores(threads):
    culprits = (2,) if threads else (0, 1, 2, 3)
    recording = recorded(some(culprits, joined(threads=threads.get("odd", 8)), joined(threads=1)), cores=8)
    found = the_finding(recording)
    assert (found.code, found.severity, found.culprits) == ("DDP704", "warning", culprits)
    assert "8 cores" in found.summary
    assert "2 here" in found.remedy


def test_the_line_that_sets_the_threads():
    found = the_finding(recorded(lambda r: joined(threads=1)(r).threads(64, line(5)), cores=8))
    assert found.where == tuple((number, line(5)) for number in range(4))


@pytest.mark.parametrize(
    ("threads", "cores"), [(2, 8), (1, 1), (1, 0.5), (8, 0), (8, None), (7, 8)],
    ids=["fits", "one each", "a quota", "no cores known", "nothing known", "not far above"],
)  # fmt: skip
def test_threads_that_are_no_trouble(threads, cores):
    host = {} if cores is None else {"cores": cores}
    assert settings.find(recorded(joined(threads=threads), **host)) == []


def test_threads_that_were_set_right_after_all():
    assert settings.find(recorded(lambda r: joined(threads=64)(r).threads(2), cores=8)) == []


# -- DDP506


def test_shared_memory_that_is_full_where_workers_need_it():
    recording = recorded(
        lambda r: r.loader(line(5), num_workers=2 if r.rank in (1, 3) else 0), shm_total=64 << 20, shm_free=3 << 20
    )
    (found,) = settings.find(recording)
    assert (found.code, found.severity, found.culprits) == ("DDP506", "warning", (1, 3))
    assert "3 MiB left of 64 MiB" in found.summary
    assert found.where == ((1, line(5)), (3, line(5)))


@pytest.mark.parametrize(
    ("workers", "host"),
    [(0, {"shm_free": 1, "shm_total": GIB}), (2, {"shm_free": GIB, "shm_total": 2 * GIB}), (2, {}), (2, {"shm_free": 1})],
    ids=["no workers", "room enough", "nothing known", "half known"],
)  # fmt: skip
def test_shared_memory_that_is_no_trouble(workers, host):
    assert settings.find(recorded(lambda r: r.loader(num_workers=workers), **host)) == []


# -- DDP703


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("NCCL_BLOCKING_WAIT", "1", "TORCH_NCCL_BLOCKING_WAIT"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "deprecated"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", "watchdog"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "hanging"),
        ("CUDA_LAUNCH_BLOCKING", "1", "debugging"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "slower"),
        ("NCCL_P2P_DISABLE", "1", "direct"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0", "watchdog"),
        ("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.6|x", "PYTORCH_ALLOC_CONF"),
    ],
)
@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (2,)], ids=str)
def test_variables_that_somebody_will_regret(variable, value, word, ranks):
    found = the_finding(recorded(lambda r: r.environment(**({variable: value} if r.rank in ranks else {}))))
    assert (found.code, found.severity, found.culprits) == ("DDP703", "warning", ranks)
    assert found.summary.startswith(f"{variable}={value} ")
    assert word in found.summary


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUDA_LAUNCH_BLOCKING", "0"),
        ("TORCH_NCCL_BLOCKING_WAIT", "0"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ("NCCL_DEBUG", "INFO"),
        ("OMP_NUM_THREADS", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
    ],
)
def test_variables_that_are_fine(variable, value):
    assert settings.find(recorded(lambda r: r.environment(**{variable: value}))) == []


def test_two_variables_that_contradict_each_other():
    both = {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}
    assert "contradicts" in the_finding(recorded(lambda r: r.environment(**both))).summary


def test_what_the_environment_was_when_the_rank_joined_counts():
    taken = recorded(lambda r: r.environment(CUDA_LAUNCH_BLOCKING="1").environment(CUDA_LAUNCH_BLOCKING="0"))
    assert settings.find(taken) == []
    assert settings.environment(taken.ranks[0]) == {"CUDA_LAUNCH_BLOCKING": "0"}


def test_other_values_on_other_ranks_are_findings_of_their_own():
    taken = recorded(lambda r: r.environment(NCCL_BLOCKING_WAIT=str(r.rank % 2)))
    assert [(one.code, one.culprits) for one in settings.find(taken)] == [("DDP703", (0, 2)), ("DDP703", (1, 3))]


def test_the_only_line_that_may_set_the_variable_is_a_guess():
    script = Script("""
        import os
        # os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"   # set
    """)
    found = the_finding(recorded(lambda r: r.environment(CUDA_LAUNCH_BLOCKING="1"), script=script))
    assert found.where == tuple((number, INIT) for number in range(4))
    assert found.hint == Hint(script.file, script.line("set"), "this line may set CUDA_LAUNCH_BLOCKING")


def test_without_such_a_line_there_is_no_guess():
    found = the_finding(recorded(lambda r: r.environment(CUDA_LAUNCH_BLOCKING="1")))
    assert found.hint is None
    assert found.where == tuple((number, INIT) for number in range(4))


# -- the last init_process_group of each rank


def test_the_last_start_counts():
    rank = Rank(0, 2).phase("init_process_group", "done", INIT, rank=1)
    assert settings.inits(record(rank, Rank(1, 2).absent()))[0].rank == 1
    assert settings.inits(record(Rank(1, 2).absent())) == {}


@pytest.mark.parametrize(
    ("code", "fact", "values", "summary"),
    [
        (
            "DDP106",
            "asked",
            ("gloo", "nccl", "mpi"),
            "different backends: 'gloo' on rank 0, 'nccl' on rank 1, 'mpi' on rank 2.",
        ),
        (
            "DDP107",
            "torch",
            ("2.1", "2.2", "2.3"),
            "different versions of torch: 2.1 on rank 0, 2.2 on rank 1, 2.3 on rank 2.",
        ),
    ],
)
def test_three_settings_are_told_by_side(code, fact, values, summary):
    ranks = [Rank(number, 3).joined(line(2), **{fact: value}) for number, value in enumerate(values)]
    (found,) = [one for one in diagnose(record(*ranks)).findings if one.code == code]
    assert found.summary.endswith(summary) and found.sides == ((0,), (1,), (2,))
