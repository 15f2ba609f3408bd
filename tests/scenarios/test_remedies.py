"""What a finding says to change works: the same script with that change ends well, and nothing is found."""

from __future__ import annotations

import pytest

from tests.conftest import VICTIMS

pytestmark = pytest.mark.world
SCRIPT = VICTIMS / "remedies.py"
# The finding, and the words of its remedy that the script follows.
CASES = {
    "break_on_a_condition": ("DDP308", "all_reduce the condition in each iteration (ReduceOp.MAX)"),
    "until_a_loss": ("DDP308", "all_reduce the condition in each iteration"),
    "iterable_data_of_other_length": (
        "DDP308",
        "1 on a rank that has a batch, else 0: all_reduce it with ReduceOp.MIN",
    ),
    "part_of_other_length": ("DDP308", "the minimum number of batches of the DataLoader at "),
    "other_batch_size": ("DDP308", "the same batch_size (2 on rank 0, 4 on rank 1)"),
    "uneven_batches_with_adam": ("DDP308", "take the minimum number of iterations of the loop at "),
    "adam_after_join": ("DDP410", "broadcast the tensors in optimizer.state from the rank that had the most batches"),
    "uneven_batches_with_join": ("DDP308", "the Join context manager"),
    "branch_of_one_rank": ("DDP301", "all_reduce the flag first"),
    "other_operations": ("DDP302", "Call the same operation on all ranks"),
    "other_shapes": ("DDP303", "pad them"),
    "other_dtypes": ("DDP304", "Convert to one dtype before the call"),
    "other_roots": ("DDP305", "root"),
    "groups_in_other_order": ("DDP306", "order"),
    "both_send_first": ("DDP307", "Let one side send while the other receives"),
    "both_receive_first": ("DDP307", "batch_isend_irecv"),
    "one_evaluates_the_wrapped_model": ("DDP411", "model.module(input)"),
    "one_evaluates_a_sharded_model": ("DDP411", "Let all ranks evaluate: each forward of a sharded model"),
    "parameters_edited_on_one_rank": ("DDP405", "for p in model.parameters(): dist.broadcast(p.data, src=0)"),
    "model_past_the_wrapper": ("DDP407", "Call the wrapper itself"),
    "last_micro_step_not_synchronised": ("DDP408", "Exit no_sync() before the last backward of each step"),
    "frozen_when_wrapped": ("DDP415", "wrap the model again"),
    "no_sampler": ("DDP501", "sampler=DistributedSampler(dataset)"),
    "samplers_of_one_rank": ("DDP501", "Omit num_replicas= and rank= of DistributedSampler"),
    "tensor_parallel_by_rank": ("DDP503", "else 1 and 0"),
    "epoch_not_set": ("DDP502", "Call sampler.set_epoch(epoch)"),
    "loaded_on_one_rank": ("DDP601", "Load the checkpoint on all ranks"),
    "unused_parameters": ("DDP401", "find_unused_parameters=True"),
    "other_model": ("DDP403", "must be agreed on first"),
    "other_learning_rate": ("DDP410", "on all ranks"),
    "converted_after_wrapping": ("DDP412", "Convert where there is a GPU"),
    "hook_of_one_rank": ("DDP416", "Register the same communication hook"),
    "work_discarded": ("DDP316", "call handle.wait()"),
}
# Where the ranks wait in calls of the wrapper's own, and no optimizer keeps a state.
JOINS = ("iterable_data_of_other_length", "part_of_other_length", "other_batch_size", "uneven_batches_with_join")
JOINS += ("adam_after_join",)  # to be made equal after it


@pytest.mark.parametrize("case", CASES)
def test_a_script_that_follows_the_remedy_ends_well(scenario, case):
    code, words = CASES[case]
    broken = scenario(
        f"remedies/{case}", lambda world: world.run(SCRIPT, case, stream=None, patience=2.0).wait(60), patience=2.0
    )
    finding = next((finding for finding in broken.diagnosis.findings if finding.code == code), None)
    assert finding is not None, str(broken)
    assert words in finding.remedy, finding.remedy
    assert ("Join" in finding.remedy) == (case in JOINS), finding.remedy
    remedied = scenario(
        f"remedies/{case}-remedied",
        lambda world: world.run(SCRIPT, case, "remedied", stream=None).wait(60),
        patience=10.0,
    )
    assert remedied.outcome == "ok", str(remedied)
    assert [finding for finding in remedied.diagnosis.findings if finding.severity != "note"] == [], str(remedied)
