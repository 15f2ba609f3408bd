from __future__ import annotations

import pytest

from ddpnb.reports.dumps.file_names import ranks


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("comm_lib_trace_rank_12", 12),
        ("nccl_trace_rank_container-node02_5", 5),
        ("rank3.pickle", 3),
        ("fr_3.json", 3),
        ("rank_0_of_8.json", 0),
        ("3", 3),
        ("trace.17.pkl.gz", 17),
        ("nccl_trace_rank_3_1719320000", 3),
        ("fr_2026-11-23_4.pickle", 4),
        ("fr_4_2026-11-23T10-20-30.pickle", 4),
        ("dump_20261123-102030_4", 4),
        ("Rank-7.json", 7),
        ("dump.pickle", -1),
        ("dump-2026-11-23.pickle", -1),
    ],
)
def test_one_name(name, rank):
    assert ranks([f"/job12/dumps/{name}"])[0][0] == rank


def test_the_number_in_which_files_differ():
    assert ranks(["fr_0_attempt1", "fr_1_attempt1", "fr_2_attempt1"]) == [(0, False), (1, False), (2, False)]
    assert ranks(["job7_fr_0", "job7_fr_1"]) == [(0, False), (1, False)]


def test_several_snapshots_of_a_rank():
    assert [rank for rank, _ in ranks(["rank0_step100", "rank1_step100", "rank0_step200"])] == [0, 1, 0]
