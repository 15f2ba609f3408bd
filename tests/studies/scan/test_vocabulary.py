"""Names: which tell the rank, which only look like it."""

from __future__ import annotations

import pytest

from ddpnb.studies.scan import vocabulary as words


@pytest.mark.parametrize(
    "name",
    ["rank", "RANK", "local_rank", "get_rank", "get_local_rank", "dp_rank", "data_parallel_rank", "global_rank",
     "_rank", "tensor_model_parallel_rank".replace("tensor_", ""), "process_index", "ddp_local_rank", "my_rank"],
)  # fmt: skip
def test_ranks(name):
    assert words.is_rank(name)
    assert words.tells_rank(name)


@pytest.mark.parametrize(
    "name",
    ["is_main_process", "master_process", "is_master", "rank_zero", "is_rank_0", "is_local_main_process", "rank0",
     "is_global_zero", "is_primary", "main_process", "is_first_rank", "is_chief", "is_last_process", "is_main"],
)  # fmt: skip
def test_flags_of_one_rank(name):
    assert words.tells_rank(name)


@pytest.mark.parametrize(
    "name",
    ["main", "master", "first", "root", "head", "lora_rank", "num_ranks", "ranks", "ranking", "matrix_rank", "world_size",
     "is_initialized", "step", "", "_", "rank_loss", "low_rank", "prank", "is_maintained", "x" * 500, "a_" * 200 + "rank"],
)  # fmt: skip
def test_what_is_none(name):
    assert not words.tells_rank(name)


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_LOCAL_RANK", "NODE_RANK"])
def test_environment_variables_of_a_rank(name):
    assert words.is_rank_variable(name)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "LORA_RANK", "MASTER_ADDR", "rank", ""])
def test_other_environment_variables(name):
    assert not words.is_rank_variable(name)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("torch.distributed.all_reduce", "all_reduce"),
        ("torch.distributed.get_rank", None),
        ("torch.distributed.checkpoint.save", "checkpoint.save"),
        ("torch.distributed.checkpoint.FileSystemWriter", None),
        ("torch.nn.parallel.DistributedDataParallel", "DistributedDataParallel"),
        ("torch.nn.Linear", None),
        ("deepspeed.comm.all_reduce", "all_reduce"),
        ("mylib.dist_utils.all_gather_object", "all_gather_object"),
        ("mylib.dist_utils.gather", None),
        ("mylib.common.gather", None),
        ("mylib.comm.barrier", "barrier"),
        ("threading.barrier", None),
    ],
)
def test_operations(name, op):
    assert words.operation(name) == op
