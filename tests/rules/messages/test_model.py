from __future__ import annotations

import pytest

from ddpnb.rules.messages.explain import explain, explain_text
from tests.rules.messages.told import FILE, inside, told, user

COUNT = "DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has inconsistent {} params."
SHAPE = "[{}]: params[{}] in this process with sizes [3, 2] appears not to match sizes of the same param in process 0."
GETATTR = inside("torch/nn/modules/module.py", "__getattr__", 1967)
NAMES = ("body.weight", "head.weight")


def test_another_number_of_parameters_blames_the_rank_that_the_message_blames():
    found = told(COUNT.format(0, 2, 1, 4))
    assert (found.code, found.culprits) == ("DDP403", (1,))
    assert "rank 0 has 2 parameters, rank 1 has 4" in found.summary


def test_the_ranks_of_a_log_vote_on_who_is_odd():
    lines = [COUNT.format(0, 2, 1, 4), COUNT.format(1, 4, 0, 2), COUNT.format(2, 2, 1, 4)]
    log = "".join(f"[rank{rank}]: RuntimeError: {line}\n" for rank, line in enumerate(lines))
    (found,) = explain_text(log)
    assert found.culprits == (1,)


def test_another_size_is_named():
    found = told(SHAPE.format(2, 1), names=NAMES)
    assert (found.code, found.culprits, found.tensors) == ("DDP403", (2,), ("head.weight",))
    assert "head.weight, here [3, 2], has different sizes on rank 0" in found.summary
    assert "parameter number 1" in told(SHAPE.format(2, 1)).summary


@pytest.mark.parametrize(
    "message",
    [
        "params[127] in this process with sizes [256, 256, 1, 1] appears not to match strides of the same param in process 0.",
        "replicas[0][127] in this process with sizes [12, 6] appears not to match sizes of the same param in process 0.",
    ],
)
def test_the_words_of_older_versions_name_no_rank(message):
    found = told(message)
    assert (found.code, found.culprits) == ("DDP403", None)
    assert "127" in found.summary


def test_layers_without_sizes():
    message = (
        "Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a dummy forward pass to "
        "correctly initialize the modules"
    )
    assert told(message).code == "DDP403"


@pytest.mark.parametrize(
    "message",
    [
        "SyncBatchNorm layers only work with GPU modules",
        "SyncBatchNorm expected input tensor to be on GPU or XPU or privateuseone",
        "SyncBatchNorm is only supported within torch.nn.parallel.DistributedDataParallel",
    ],
)
def test_sync_batch_norm(message):
    assert told(message, "ValueError").code == "DDP412"


@pytest.mark.parametrize("wrapper", ["DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"])
@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("anchors = model.encode(a)", "Write model.module.encode."),
        ("self.net.encode(batch[0])", "Write self.net.module.encode."),
        ("for a in build(x).encode(1):", "Write build(x).module.encode."),
        ("if model.encode(", "Write model.module.encode."),
        ("return getattr(self.model, name)", "Write model.module.encode."),
    ],
)
def test_the_remedy_is_the_users_own_expression(wrapper, line, remedy):
    found = told(f"'{wrapper}' object has no attribute 'encode'", "AttributeError", user(1), GETATTR, source=line)
    assert found.code == "DDP413"
    assert found.remedy.startswith(remedy)
    assert "encode is an attribute of the model" in found.summary


def test_a_model_that_is_not_wrapped_here():
    message = "'Net' object has no attribute 'module'"
    assert told(message, "AttributeError", user(), GETATTR).code == "DDP413"
    assert explain(message, "AttributeError", frames=[user()]) is None


@pytest.mark.parametrize(
    "message",
    [
        "'Net' object has no attribute 'encode'",
        "'NoneType' object has no attribute 'module'",
        "module 'torch' has no attribute 'x'",
    ],
)
def test_any_other_attribute_is_the_users(message):
    assert explain(message, "AttributeError", frames=[user()]) is None


def test_the_wrapper_itself_is_saved():
    message = (
        "DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, when you have "
        "called init_process_group and have not passed process_group argument to DDP constructor"
    )
    assert told(message).code == "DDP413"


READ = 'state = model.state_dict()\nprobe.load(state["fc.weight"])\n'


def test_a_key_without_the_wrappers_prefix():
    frame = user(2, model="<torch.nn.parallel.distributed.DistributedDataParallel>")
    found = told("'fc.weight'", "KeyError", frame, source=READ)
    assert (found.code, found.tensors) == ("DDP413", ("fc.weight",))
    assert "module.fc.weight" in found.summary
    assert told("'fc.weight'", "KeyError", user(2), source=READ, names=["fc.weight", "fc.bias"]).code == "DDP413"
    loaded = "state = torch.load(path)\n" + READ
    assert told("'fc.weight'", "KeyError", user(3), source=loaded, names=["fc.weight"]).code == "DDP602"
    assert told("'module.fc.weight'", "KeyError", user(2), source=READ, names=["fc.weight"]).code == "DDP602"


def test_a_key_of_the_users_own_is_the_users():
    for message in ("'fc.weight'", "'train.lr'", "'labels'"):
        assert explain(message, "KeyError", frames=[user(2)], sources={FILE: READ}) is None
        assert explain(message, "KeyError") is None


@pytest.mark.parametrize(
    ("message", "exception"),
    [
        (
            "Unable to cast Python instance of type <class 'torch.Tensor'> to C++ type '?' (...). DDP communication hook's "
            "callback must return a torch.futures.Future object, but got torch.Tensor",
            "RuntimeError",
        ),
        ("register_comm_hook or register_builtin_comm_hook can only be called once.", "RuntimeError"),
        ("Communication hook must be callable.", "TypeError"),
        ("Communication hook: bucket annotation should be dist.GradBucket.", "ValueError"),
        ("Communication hook: return annotation should be torch.futures.Future[torch.Tensor].", "ValueError"),
        ("BF16 all reduce communication hook required CUDA 11+ and NCCL 2.10+ or XPU and XCCL", "TypeError"),
    ],
)
def test_communication_hooks(message, exception):
    assert told(message, exception).code == "DDP416"
