"""The line that made ranks part, out of the user's source: nothing is run, and nothing is guessed without a reason."""

from __future__ import annotations

import pytest

from ddpnb.analysis.source import suspects
from ddpnb.analysis.source.suspects import best, bypass, lines, point, statements
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.replicas import Sample
from tests.analysis.recordings import FILE, Rank, Script, line, record


def about(text):
    """What is said of the line that is marked ``# here``."""
    script = Script(text)
    (found,) = [one for one in statements(script.text) if one.line == script.line("here")]
    return found


def chosen(text, words=suspects.PARAMETERS, tensors=(), mark="step", **more):
    """The marked line that is chosen, seen from ``# step``; None for no line at all."""
    script = Script(text)
    found = best(record(Rank(0), script=script), script.at(mark), words, tensors, **more)
    return None if found is None else script.text.splitlines()[found.line - 1].partition("# ")[2]


# -- what a statement has to do with the rank


@pytest.mark.parametrize(
    "text",
    [
        "scale = 1 + rank   # here",
        "scale = table[dist.get_rank()]   # here",
        "scale = 2 if is_main_process() else 1   # here",
        "scale = float(os.environ['LOCAL_RANK'])   # here",
        "scale = self.local_rank * 2   # here",
        "share = 1 + rank\nscale = share * 2   # here",
        "share: float = 1 + rank\nscale = share * 2   # here",
        "self.share = 1 + rank\nscale = self.share * 2   # here",
        "a, (b, *c) = rank, (1, 2)\nscale = c   # here",
        "if rank == 0:\n    scale = 3   # here",
        "if rank == 0:\n    pass\nelse:\n    scale = 3   # here",
        "if rank == 0:\n    for x in y:\n        with z:\n            scale = 3   # here",
        "match rank:\n    case 0:\n        scale = 3   # here",
        "while step < rank:   # here\n    pass",
        "w.mul_(1 + rank)   # here",
    ],
)
def test_what_depends_on_the_rank(text):
    assert about(text).of_rank


@pytest.mark.parametrize(
    "text",
    [
        "scale = 3   # here",
        "if step == 0:\n    scale = 3   # here",
        "def main(rank):\n    scale = 3   # here",
        "if rank == 0:\n    def f():\n        scale = 3   # here",
        "if rank == 0:\n    pass\nscale = 3   # here",
        "model = DDP(net.to(rank), device_ids=[rank])   # here",
        "model = DDP(net, device_ids=[rank])\nscale = model(x)   # here",
        "batch = batch.cuda(rank)\nscale = model(batch)   # here",
        "g = torch.Generator().manual_seed(rank)\nx = torch.randn(4, generator=g)   # here",
        "optimizer = SGD(parameters, lr=0.1 * rank)\noptimizer.step()   # here",
        "self.rank = rank\nself.model(x)   # here",
    ],
    ids=[
        "plain", "a step", "an argument of the function", "a function of its own", "after the branch", "its device",
        "a model on its device", "a batch on its device", "its own random numbers", "used, not decided", "the same object",
    ],
)  # fmt: skip
def test_what_does_not_depend_on_the_rank(text):
    assert not about(text).of_rank


def test_the_conditions_around_a_statement():
    found = about("""
        def main():
            if step > 3:
                try:
                    if done:
                        pass
                    else:
                        x = 1   # here
                finally:
                    pass
    """)
    assert (found.conditions, found.function) == (("step > 3", "not (done)"), "main")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("model.fc.weight.data.mul_(2)   # here", {"model", "fc", "weight", "data"}),
        ("model.fc.weight.data = x   # here", {"model", "fc", "weight", "data"}),
        ("weights[0] = x   # here", {"weights"}),
        ("p += 1   # here", {"p"}),
        ("nn.init.zeros_(head.bias)   # here", {"head", "bias"}),
        ("net.head.load_state_dict(state)   # here", {"net", "head"}),
        ("net.apply(initialise)   # here", {"net"}),
        ("x = model.fc.weight   # here", set()),
        ("y = model.__call__(x)   # here", set()),
    ],
)
def test_what_a_statement_changes_in_place(text, written):
    assert written <= about(text).writes
    assert bool(written) == bool(about(text).writes)


@pytest.mark.parametrize("text", ["", "def main(:\n", "x = '\0'", "if x:\n", "é = (" * 300])
def test_a_file_that_is_not_python_has_no_statements(text):
    assert statements(text) == ()


@pytest.mark.parametrize("terms", [10, 500, 9000])
def test_a_sum_of_many_terms_hides_no_other_line(terms):
    """Beyond some number Python itself gives up."""
    found = statements(f"x = {' + '.join(['rank'] * terms)}\nif {'a + ' * terms} a:\n    y = 3\n")
    assert [one.line for one in found] == ([1, 3] if terms < 5000 else [])


def test_all_kinds_of_statements_are_walked():
    text = """
    async def main():
        async for x in y:
            async with z:
                first = 1
        try:
            second = 1
        except* ValueError:
            third = 1
        else:
            fourth = 1
        match x:
            case 1:
                fifth = 1
        class Inner:
            sixth = 1
        while True:
            seventh = 1
        else:
            eighth = 1
    """
    seen = [one.text for one in statements(Script(text).text) if one.text.endswith(" = 1")]
    assert seen == [
        f"{word} = 1" for word in ("first", "second", "fourth", "third", "fifth", "sixth", "seventh", "eighth")
    ]


# -- the most likely of them


def test_the_statement_that_only_some_ranks_run():
    text = """
    def main(rank):
        model.head.reset_parameters()   # all
        if rank == 0:
            model.head.reset_parameters()   # some
        loss = model(batch)   # step
    """
    assert chosen(text, tensors=("head.weight",)) == "some"


def test_the_statement_that_changes_what_differs():
    text = """
    def main():
        model.body.weight.data.add_(noise)   # body
        model.head.weight.data.add_(noise)   # head
        loss = model(batch)   # step
    """
    assert chosen(text, tensors=("head.weight", "head.bias")) == "head"
    assert chosen(text, tensors=("body.weight",)) == "body"


def test_a_tensor_that_is_called_weight_stands_in_no_names():
    text = """
    def main():
        for p in model.parameters():
            p.data.clamp_(-1, 1)   # all of them
        loss = model(batch)   # step
    """
    assert chosen(text, tensors=("weight",)) == "all of them"


def test_what_is_made_in_a_constructor_is_not_changed_there():
    text = """
    class Net:
        def __init__(self):
            self.head.weight = Parameter(x)   # made
    loss = model(batch)   # step
    """
    assert chosen(text, tensors=("head.weight",)) is None


@pytest.mark.parametrize(
    "harmless",
    [
        "print('parameters of', rank)",
        "logger.info('weight %s', rank)",
        "rank = dist.get_rank()",
        "self.rank = int(os.environ['RANK'])",
        "torch.cuda.set_device(rank)",
        "torch.manual_seed(rank + 1)",
        "torch.save(model.state_dict(), f'{rank}.pt')",
        "dist.init_process_group(rank=rank)",
        "state = {k: v.shape for k, v in model.state_dict().items()}",
        "raise ValueError(f'parameter on rank {rank}')",
        "assert rank < 8, 'parameter'",
    ],
)
def test_what_everybody_does_with_the_rank(harmless):
    assert chosen(f"{harmless}   # harmless\nloss = model(batch)   # step") is None


@pytest.mark.parametrize("change", ["ema.load_state_dict(model.state_dict())", "model.state_dict()['weight'].mul_(2)"])
def test_a_state_that_is_read_and_loaded_or_changed(change):
    assert chosen(f"if rank == 0:\n    {change}   # changed\nloss = model(batch)   # step") == "changed"


def test_nothing_speaks_for_any_line():
    assert chosen("loss = model(batch)   # step\nx = 3   # other") is None
    script = Script("loss = model(batch)   # step")
    assert best(record(Rank(0)), script.at("step"), suspects.PARAMETERS) is None  # nobody has the text
    assert point(record(Rank(0), script=script), script.at("step"), suspects.PARAMETERS) == script.at("step")


def test_no_words_are_no_reason():
    text = "if rank == 0:\n    model.weight.mul_(2)   # some\nloss = model(batch)   # step"
    assert chosen(text, words=suspects.NONE) is None
    assert chosen(text, words=suspects.ANY) == "some"


def test_a_wanted_statement_needs_no_rank():
    text = "for p in parameters:\n    dist.broadcast(p.data.clone(), 0)   # copy\nloss = model(batch)   # step"
    assert chosen(text, words=suspects.NONE) is None
    assert chosen(text, words=suspects.NONE, wanted=suspects.re.compile("broadcast")) == "copy"


def test_of_equals_the_one_in_the_same_function_then_the_nearest():
    text = """
    def other(rank):
        scale_weight(1 + rank)   # elsewhere
    def main(rank):
        scale_weight(2 + rank)   # far
        x = 3
        scale_weight(3 + rank)   # near
        loss = model(batch)   # step
    def last(rank):
        scale_weight(4 + rank)   # after
    """
    assert chosen(text) == "near"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (suspects.SYNC, "if rank == 1:\n    with model.no_sync():   # right\n        loss.backward()"),
        (suspects.OPTIMIZER, "optimizer = SGD(params, lr=0.1 * (1 + rank))   # right"),
        (suspects.OPTIMIZER, "if rank == 0:\n    scheduler.step()   # right"),
        (suspects.GRADIENTS, "if rank == 1:\n    p.grad.zero_()   # right"),
        (suspects.BUFFERS, "if rank == 1:\n    model.norm.eval()   # right"),
        (suspects.LOSS, "if rank == 1:\n    loss = loss / 4   # right"),
        (suspects.DATA, "if rank == 1:\n    batch = batch / batch.sum()   # right"),
        (suspects.PARAMETERS, "if rank == 1:\n    ema.copy_to(model.parameters())   # right"),
    ],
)
def test_the_words_of_each_rule(words, text):
    assert chosen(f"{text}\noptimizer.zero_grad()\nloss = model(x)   # step", words) == "right"


# -- where the ranks are pointed to

SCRIPT = Script("""
    def main(rank):
        if rank == 1:
            model.head.weight.data.mul_(2)   # edit
        loss = model(batch)   # step
""")


def samples(*sites):
    return {rank: Sample(0, "forward", 1, site=site) for rank, site in enumerate(sites)}


def test_culprits_are_pointed_to_the_statement_and_the_others_to_their_own():
    at = SCRIPT.at("step")
    places, reasons = lines(
        record(Rank(0), script=SCRIPT), samples(at, at, at), (1,), suspects.PARAMETERS, ("head.weight",)
    )
    assert places == ((1, SCRIPT.at("edit")), (0, at), (2, at))
    assert reasons == [f"Look at {FILE}:{SCRIPT.line('edit')}: model.head.weight.data.mul_(2), if rank == 1."]


def test_without_a_statement_all_are_pointed_to_their_own():
    places, reasons = lines(record(Rank(0)), samples(line(4), line(5)), (1,), suspects.PARAMETERS)
    assert (places, reasons) == (((1, line(5)), (0, line(4))), [])


def test_a_culprit_of_which_no_place_is_known():
    places, reasons = lines(record(Rank(0), script=SCRIPT), samples(line(4), NO_SITE), (1,), suspects.PARAMETERS)
    assert (places, reasons) == (((1, NO_SITE), (0, line(4))), [])
    places, reasons = lines(record(Rank(0), script=SCRIPT), samples(line(4)), (7,), suspects.PARAMETERS)
    assert (places, reasons) == (((0, line(4)),), [])


def test_culprits_in_another_file_are_looked_for_there():
    other = Site("/home/user/model.py", 4, "forward")
    places, reasons = lines(
        record(Rank(0), script=SCRIPT), samples(SCRIPT.at("step"), other), (1,), suspects.PARAMETERS
    )
    assert (dict(places)[1], reasons) == (other, [])


# -- past the wrapper


def stepped(at, **facts):
    return Sample(0, "gradients", 1, site=at, facts=facts)


def test_the_place_that_was_seen():
    seen = {"file": "/home/user/model.py", "line": 8, "function": "fit"}
    assert bypass(record(Rank(0)), stepped(line(9), bypass_site=seen)) == Site("/home/user/model.py", 8, "fit")


PAST = Script("""
    def evaluate(model):
        return model.module(x)   # evaluation


    def main(model):
        # out = model.module(batch)
        out = model.module.features(batch)   # training
        optimizer.step()   # step
""")


def test_the_nearest_line_that_goes_past_the_wrapper():
    taken = record(Rank(0), script=PAST)
    assert bypass(taken, stepped(PAST.at("step"))).line == PAST.line("training")
    assert bypass(taken, stepped(PAST.at("evaluation"))).line == PAST.line("evaluation")


def test_no_line_goes_past_the_wrapper():
    at = SCRIPT.at("step")
    assert bypass(record(Rank(0), script=SCRIPT), stepped(at)) == at
    assert bypass(record(Rank(0)), stepped(NO_SITE)) == NO_SITE
