"""What is imported once for all ranks that are forked."""

from __future__ import annotations

import pytest

from ddpnb.inject import fork_ranks


@pytest.mark.parametrize(
    ("text", "wraps"),
    [
        ("from torch.nn.parallel import DistributedDataParallel as DDP\n", True),
        ("import torch.distributed as dist\ndist.init_process_group()\n", False),
    ],
)
def test_what_a_wrapper_needs_is_imported_for_scripts_that_name_one(tmp_path, text, wraps):
    (tmp_path / "train.py").write_text(text)
    assert fork_ranks._wraps_models(str(tmp_path / "train.py")) is wraps


def test_a_script_that_cannot_be_read_names_none(tmp_path):
    assert not fork_ranks._wraps_models(str(tmp_path / "nowhere.py"))
