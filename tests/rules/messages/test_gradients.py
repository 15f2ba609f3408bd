from __future__ import annotations

import pytest

from ddpnb.model.findings import Hint
from ddpnb.rules.messages.explain import explain, explain_text
from tests.rules.messages.told import FILE, told, user

PRIOR = "Expected to have finished reduction in the prior iteration before starting a new one. "
UNUSED = (
    PRIOR
    + "This error indicates that your module has parameters that were not used in producing loss. You can enable unused "
    "parameter detection by passing the keyword argument `find_unused_parameters=True` to "
    "`torch.nn.parallel.DistributedDataParallel`, and by \nmaking sure all `forward` function outputs participate in "
    "calculating loss. \nIf you already have done the above, then the distributed data parallel module wasn't able to locate "
    "the output tensors in the return value of your module's `forward` function. Please include the loss function and the "
    "structure of the return value of `forward` of your module when reporting this issue (e.g. list, dict, iterable).\n"
)
PLACES = "Parameter indices which did not receive grad for rank {}: {}"
HINT = (
    "\n In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print out "
    "information about which particular parameters did not receive gradient on this rank as part of this error"
)
NAMED = "Parameters which did not receive grad for rank {}: aux.1.bias, aux.1.weight, aux.0.bias, aux.0.weight\n"
ENABLED = (
    PRIOR + "This error indicates that your module has parameters that were not used in producing loss. Since "
    "`find_unused_parameters=True` is enabled, this likely  means that not all `forward` outputs participate in computing "
    "loss. You can fix this by \nmaking sure all `forward` function outputs participate in calculating loss. \n"
)
STATIC = (
    PRIOR
    + "This error indicates that your training graph has changed in this iteration, e.g., one parameter is used in first "
    "iteration, but then got unused in the second iteration. this is not compatible with static_graph set to True.\n"
)
TWICE = (
    "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use of a module "
    "parameter outside the `forward` function. Please make sure model parameters are not shared across multiple concurrent "
    "forward-backward passes. [...]\nParameter at index {}{} has been marked as ready twice. This means that multiple autograd "
    "engine  hooks have fired for this particular parameter during this iteration."
)
ALL = (
    "body.weight",
    "body.bias",
    "head.weight",
    "head.bias",
    "aux.0.weight",
    "aux.0.bias",
    "aux.1.weight",
    "aux.1.bias",
)


def test_indices_become_names():
    found = told(UNUSED + PLACES.format(1, "4 5 6 7") + HINT, names=ALL)
    assert (found.code, found.culprits, found.tensors) == ("DDP401", (1,), ALL[4:])
    assert "aux.0.weight, aux.0.bias, aux.1.weight and aux.1.bias" in found.summary
    assert "find_unused_parameters=True" in found.remedy


def test_indices_without_names_stay_numbers():
    found = told(UNUSED + PLACES.format(0, "4 5 6 7") + HINT)
    assert (found.code, found.culprits, found.tensors) == ("DDP401", (0,), ())
    assert "4 parameters (number 4-7)" in found.summary


def test_indices_of_another_model_are_not_named_wrongly():
    assert told(UNUSED + PLACES.format(0, "4 5") + HINT, names=ALL[:3]).tensors == ()


def test_the_wrappers_prefix_is_left_out_of_names():
    found = told(UNUSED + PLACES.format(0, "2 3") + HINT, names=[f"module.{name}" for name in ALL])
    assert found.tensors == ("head.weight", "head.bias")


@pytest.mark.parametrize("names", [(), ALL])
def test_names_that_torch_gives_itself(names):
    found = told(UNUSED + NAMED.format(0) + PLACES.format(0, "4 5 6 7"), names=names)
    assert found.tensors == ALL[4:]


def test_many_names_are_told_by_their_modules():
    names = [f"layers.{i}.proj.{kind}" for i in range(9) for kind in ("weight", "bias")]
    found = told(UNUSED + PLACES.format(0, " ".join(map(str, range(18)))) + HINT, names=names)
    assert "18 parameters (of layers.0.proj, layers.1.proj, layers.2.proj and 6 more)" in found.summary


def test_the_words_of_torch_1_7_name_nobody():
    found = told(
        PRIOR
        + "This error indicates that your module has parameters that were not used in producing loss. You can enable "
        "unused parameter detection by (1) passing the keyword argument `find_unused_parameters=True` to "
        "`torch.nn.parallel.DistributedDataParallel`; (2) making sure all `forward` function outputs participate in calculating "
        "loss."
    )
    assert (found.code, found.culprits, found.tensors) == ("DDP401", None, ())


def test_an_output_that_the_loss_leaves_out():
    found = told(ENABLED + PLACES.format(2, "6 7") + HINT, names=ALL)
    assert (found.code, found.culprits) == ("DDP401", (2,))
    assert "did not use all outputs of forward" in found.summary


def test_the_ranks_of_a_log_are_told_together():
    log = "".join(
        f"[rank{rank}]: RuntimeError: {UNUSED}{NAMED.format(rank)}{PLACES.format(rank, '4 5 6 7')}\n".replace(
            "\n", f"\n[rank{rank}]: "
        )
        + "\n"
        for rank in (0, 1, 3)
    )
    (found,) = explain_text(log)
    assert (found.code, found.culprits) == ("DDP401", (0, 1, 3))


def test_nothing_to_train():
    for words in ("any parameter that requires a gradient.", "any parameters that require a gradient."):
        assert told(f"DistributedDataParallel is not needed when a module doesn't have {words}").code == "DDP401"


NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.aux = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))

    def forward(self, x, step):
        y = self.head(x)
        if step % 2:
            y = y + self.aux(x)
        return y
"""


def test_the_condition_in_forward_is_found():
    found = told(UNUSED + PLACES.format(0, "4 5 6 7") + HINT, "RuntimeError", user(40), names=ALL, source=NET)
    assert found.hint == Hint(FILE, 13, "self.aux is used here. Guarded by `if step % 2` at line 12")


FREEZES = NET + "\n\nmodel = DDP(Net())\nmodel.module.aux.requires_grad_(False)\n"
FROZE = Hint(FILE, 18, "this line may have frozen them")


@pytest.mark.parametrize("frozen", [ALL[4:], ALL[4:6], ALL[2:]], ids=["these", "some of these", "more"])
def test_parameters_that_were_seen_to_be_frozen_are_another_matter(frozen):
    found = told(UNUSED + PLACES.format(0, "4 5 6 7") + HINT, names=ALL, source=FREEZES, frozen=frozen)
    assert (found.code, found.culprits) == ("DDP415", (0,))
    assert found.evidence == ("They no longer required a gradient when the forward pass failed.",)
    assert found.hint == FROZE


@pytest.mark.parametrize("frozen", [(), ALL[:1], ALL[3:5]], ids=["nothing", "another", "one of them and another"])
def test_a_line_that_freezes_is_a_guess_where_nothing_was_recorded(frozen):
    """That a line stands below another does not mean that it ran, nor that it ran later."""
    found = told(UNUSED + PLACES.format(0, "4 5 6 7") + HINT, names=ALL, source=FREEZES, frozen=frozen)
    assert (found.code, found.culprits, found.hint) == ("DDP401", (0,), FROZE)
    assert "not used in its loss" not in found.summary


def test_of_several_lines_that_freeze_none_is_guessed():
    source = FREEZES + "model.module.aux.requires_grad_(False)\n"
    found = told(UNUSED + PLACES.format(0, "4 5 6 7") + HINT, names=ALL, source=source)
    assert found.code == "DDP401" and found.hint != FROZE


# -- DDP415


def test_a_static_graph_that_changed():
    found = told(STATIC + PLACES.format(1, "6 7") + HINT, names=ALL)
    assert (found.code, found.culprits, found.tensors) == ("DDP415", (1,), ALL[6:])
    later = (
        "Your training graph has changed in this iteration, e.g., one parameter is unused in first iteration, but then got "
        "used in the second iteration. this is not compatible with static_graph set to True."
    )
    assert told(later).code == "DDP415"
    assert (
        told("set_static_graph() should be called before training loop starts and after DistributedDataParallel").code
        == "DDP415"
    )


@pytest.mark.parametrize(
    ("message", "names", "tensors"),
    [
        (TWICE.format(1, " with name a.bias"), (), ("a.bias",)),
        (TWICE.format(1, " with name module.a.bias"), (), ("a.bias",)),
        (TWICE.format(5, ""), ALL, ("aux.0.bias",)),
        (TWICE.format(5, ""), (), ()),
    ],
)
def test_a_gradient_that_came_twice(message, names, tensors):
    found = told(message, names=names)
    assert (found.code, found.tensors) == ("DDP415", tensors)
    assert "use_reentrant=False" in found.remedy


def test_a_buffer_written_between_forward_and_backward():
    start = "one of the variables needed for gradient computation has been modified by an inplace operation: "
    found = told(start + "[torch.cuda.FloatTensor [768]] is at version 3; expected version 2 instead. Hint: ...")
    assert found.code == "DDP415"
    assert "broadcast_buffers=False" in found.remedy
    # An activation, or a parameter that an optimizer stepped: the same with one process.
    for maker in ("Exp", "AsStrided", "ReluBackward0"):
        message = (
            start
            + f"[torch.FloatTensor [3, 4]], which is output 0 of {maker}, is at version 1; expected version 0 instead."
        )
        assert explain(message, "RuntimeError") is None


def test_views_of_the_buckets():
    message = "Detected at least one parameter gradient is not the expected DDP bucket view with gradient_as_bucket_view=True."
    assert told(message).code == "DDP415"
    detached = (
        "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and "
        "gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called"
    )
    assert told(detached).code == "DDP415"
    assert explain("Can't detach views in-place. Use detach() instead.", "RuntimeError") is None


def test_autograds_own_errors_are_not_ours():
    message = "Trying to backward through the graph a second time (or directly access saved tensors after they have been freed)."
    assert explain(message, "RuntimeError") is None
