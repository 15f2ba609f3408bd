"""Remedies in the terms of the framework whose function the ranks were recorded in."""

from __future__ import annotations

import pytest

from ddpnb.recording.stacks import Frame
from tests.rules.recordings import TORCH_FRAME, Rank, Script, diagnose, line, only_finding, record

PACKAGES = "/venv/lib/python3.11/site-packages"
REDUCED_LATER = "/lightning/pytorch/trainer/connectors/logger_connector/result.py"
WAIT, TRAIN = line(12), line(20)


def library(file, function):
    return Frame(PACKAGES + file, 100, function, user=False)


def waits_inside(rank, at, *above, op="barrier"):
    rank.waits(op, at, idle=5.0)
    return rank.has_stack(Frame(at.file, at.line, at.function), *above, TORCH_FRAME)


@pytest.mark.parametrize(
    ("frames", "written"),
    [
        ([("/accelerate/accelerator.py", "wait_for_everyone")], "accelerator.wait_for_everyone()"),
        ([("/lightning/pytorch/core/module.py", "log")], "self.log(..., sync_dist=True)"),
        ([("/pytorch_lightning/core/module.py", "log_dict")], "self.log_dict(..., sync_dist=True)"),
        (
            [("/lightning/pytorch/trainer/trainer.py", "fit"), (REDUCED_LATER, "wrapped_func"), (REDUCED_LATER, "compute")],
            "self.log(..., sync_dist=True)",
        ),
        ([("/lightning/pytorch/trainer/trainer.py", "save_checkpoint")], "trainer.save_checkpoint()"),
        ([("/lightning/pytorch/strategies/ddp.py", "barrier")], "trainer.strategy.barrier()"),
        ([("/lightning/fabric/fabric.py", "all_reduce")], "fabric.all_reduce()"),
        ([("/lightning/fabric/fabric.py", "save")], "fabric.save()"),
        ([("/torchmetrics/metric.py", "wrapped_func"), ("/torchmetrics/metric.py", "sync_context")], "metric.compute()"),
        ([("/accelerate/utils/operations.py", "wrapper"), ("/accelerate/utils/operations.py", "gather")], "accelerate.utils.gather()"),
        ([("/accelerate/data_loader.py", "__iter__")], "A loop over a DataLoader that accelerator.prepare() returned"),
        ([("/transformers/trainer.py", "evaluate")], "trainer.evaluate()"),
        ([("/timm/utils/distributed.py", "reduce_tensor")], "timm.utils.reduce_tensor()"),
        (
            [("/torch/distributed/checkpoint/logger.py", "wrapper"), ("/torch/distributed/checkpoint/utils.py", "inner_func"),
             ("/torch/distributed/checkpoint/state_dict_saver.py", "save")],
            "dcp.save()",
        ),
        ([("/torch/distributed/checkpoint/state_dict.py", "get_model_state_dict")], "get_model_state_dict()"),
        ([("/torch/distributed/tensor/_api.py", "full_tensor")], "full_tensor()"),
    ],
)  # fmt: skip
def test_a_call_of_one_rank_is_named_as_its_user_wrote_it(frames, written):
    waiting = waits_inside(Rank(0, 2), WAIT, *(library(*frame) for frame in frames))
    finding = only_finding(record(waiting, Rank(1, 2).finishes()))
    if finding.code == "DDP605":  # of two ranks, either may be wrong: not both have to call it at this point
        assert (finding.culprits, finding.sides) == ((), ((0,), (1,)))
        assert f"{written} is a collective: all ranks must call it" in finding.remedy
    else:
        assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (1,), (0,))
        assert finding.remedy.startswith(f"{written} is a collective: call it on all ranks.")
    assert any("Rank 0 is inside " in text and written[2:] in text for text in finding.evidence)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [("/lightning/pytorch/trainer/trainer.py", "fit"), ("/lightning/pytorch/strategies/ddp.py", "barrier")],
        [
            ("/lightning/pytorch/trainer/trainer.py", "fit"),
            ("/lightning/pytorch/trainer/trainer.py", "save_checkpoint"),
        ],
        [("/other/accelerator.py", "wait_for_everyone")],
        [("/accelerate/accelerator.py", "print")],
    ],
)
def test_what_the_user_did_not_call_is_not_named(frames):
    waiting = waits_inside(Rank(0, 2), WAIT, *(library(*frame) for frame in frames))
    finding = only_finding(record(waiting, Rank(1, 2).finishes()))
    assert "is a collective" not in finding.remedy
    assert not any("is inside" in text for text in finding.evidence)


def test_a_function_of_the_users_own_with_such_a_name_is_the_users():
    waiting = waits_inside(Rank(0, 2), WAIT, Frame("/home/user/accelerate/accelerator.py", 3, "wait_for_everyone"))
    assert "is a collective" not in only_finding(record(waiting, Rank(1, 2).finishes())).remedy


def test_in_a_tie_the_general_remedy_stays():
    here = waits_inside(Rank(0, 2), WAIT, library("/accelerate/accelerator.py", "wait_for_everyone"))
    there = Rank(1, 2).waits("all_reduce", TRAIN, idle=5.0)
    finding = only_finding(record(here, there))
    assert finding.sides == ((0,), (1,)) and not finding.culprits
    assert not finding.remedy.startswith("accelerator")
    assert "accelerator.wait_for_everyone() is a collective" in finding.remedy


def test_of_calls_that_do_not_match_each_framework_function_is_named():
    """Both lines are that of trainer.fit(): only the frames tell the calls apart."""
    fit = library("/lightning/pytorch/trainer/trainer.py", "fit")
    here = waits_inside(Rank(0, 2), WAIT, fit, library(REDUCED_LATER, "compute"), op="all_reduce")
    there = waits_inside(Rank(1, 2), WAIT, fit, library("/lightning/pytorch/strategies/ddp.py", "reduce"))
    finding = diagnose(record(here, there)).findings[0]
    assert (finding.code, finding.sides) == ("DDP302", ((0,), (1,)))
    assert "self.log(..., sync_dist=True) is a collective: all ranks must call it, in the same order" in finding.remedy
    assert "trainer.strategy" not in finding.remedy


def test_all_ranks_in_one_function_say_nothing_of_it():
    ranks = [
        waits_inside(Rank(r, 2), WAIT, library("/accelerate/accelerator.py", "gather"), op=op)
        for r, op in enumerate(("all_gather", "all_reduce"))
    ]
    assert "is a collective" not in only_finding(record(*ranks)).remedy


def test_the_condition_around_a_metric_that_is_reduced_later_is_a_hint():
    script = Script("""
    class Model:
        def validation_step(self, batch, index):
            if self.trainer.is_global_zero:  # condition
                self.log("val", 1.0, sync_dist=True)

    trainer.fit(Model())  # fit
    """)
    frames = library("/lightning/pytorch/trainer/trainer.py", "fit"), library(REDUCED_LATER, "compute")
    waiting = waits_inside(Rank(0, 2), script.at("fit"), *frames)
    finding = only_finding(record(waiting, Rank(1, 2).finishes(), script=script))
    assert finding.hint is not None
    assert finding.hint.line == script.line("condition")
    assert "`if self.trainer.is_global_zero`" in finding.hint.reason


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (("/lightning/pytorch/trainer/trainer.py", "fit"), "With Lightning"),
        (("/accelerate/accelerator.py", "backward"), "join_uneven_inputs"),
        (("/transformers/trainer.py", "train"), "With the Trainer of transformers"),
    ],
)
def test_uneven_iterations_name_what_the_framework_has_against_them(frame, words):
    script = Script("""
    for batch in loader:
        train(batch)  # step
    """)
    at = script.at("step")
    waiting = waits_inside(Rank(0, 2).calls("all_reduce", at), at, library(*frame), op="all_reduce")
    finding = only_finding(record(waiting, Rank(1, 2).calls("all_reduce", at).finishes(), script=script))
    assert finding.code == "DDP308"
    assert words in finding.remedy
