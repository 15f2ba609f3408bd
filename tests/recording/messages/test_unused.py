from __future__ import annotations

import pytest

from ddpnb.recording.findings import Hint
from ddpnb.recording.messages.unused import frozen_after_wrapping, modules, use
from tests.rules.recordings import Script

FILE = "/home/user/train.py"


def script(forward: str, init: str = "self.aux = nn.Linear(2, 2)") -> Script:
    body = "\n".join(f"        {line}" for line in forward.strip("\n").splitlines())
    return Script(
        f"class Net(nn.Module):\n    def __init__(self):\n        {init}  # made\n\n    def forward(self, x):\n{body}\n"
    )


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("if self.training:\n    x = self.aux(x)  # use\nreturn x", "Guarded by `if self.training` at line 6."),
        ("if x is None:\n    pass\nelse:\n    x = self.aux(x)  # use\nreturn x", "Guarded by `if not (x is None)` at line 6."),
        ("if done:\n    return x\nreturn self.aux(x)  # use", "Line 7 may skip it (`return` if done)."),
        ("return self.aux(x) if self.deep else x  # use", "Guarded by `if self.deep` at line 6."),
        ("return x if self.shallow else self.aux(x)  # use", "Guarded by `if not (self.shallow)` at line 6."),
        ("return self.deep and self.aux(x)  # use", "Guarded by `self.deep and ...` at line 6."),
        ("with torch.no_grad():\n    y = self.aux(x)  # use\nreturn y", "Line 6 disables autograd: with torch.no_grad()."),
        ("return self.aux(x).detach()  # use", "Line 6 detaches it from the graph: .detach()."),
        ("for _ in range(self.depth):\n    if drop():\n        continue\n    x = self.aux(x)  # use\nreturn x", "Line 8 may skip"),
    ],
)  # fmt: skip
def test_the_reason_why_a_module_was_left_out(forward, words):
    text = script(forward)
    found = use(["aux.weight", "aux.bias"], {FILE: text.text})
    assert found is not None and found.reason.startswith("self.aux is used here. ")
    assert (found.file, found.line) == (FILE, text.line("use"))
    assert words.rstrip(".") in found.reason


def test_a_method_without_a_graph():
    text = "class Net:\n    def __init__(self):\n        self.aux = 1\n\n    @torch.no_grad()\n    def teach(self, x):\n        return self.aux(x)\n"
    assert "@torch.no_grad()" in use(["aux.weight"], {FILE: text}).reason


def test_a_module_that_no_method_uses():
    text = script("return x")
    reason = "Net creates self.aux here, but none of its methods uses it"
    assert use(["aux.0.weight"], {FILE: text.text}) == Hint(FILE, text.line("made"), reason)


def test_a_use_that_nothing_guards_is_asked_about():
    text = script("return x, self.aux(x)  # use")
    found = use(["aux.weight"], {FILE: text.text})
    assert "whenever forward runs: its result may not reach the loss" in found.reason


def test_of_several_reasons_none_is_chosen():
    text = script("if a:\n    x = self.aux(x)\nif b:\n    x = self.aux(x)\nreturn x")
    assert use(["aux.weight"], {FILE: text.text}) is None


def test_one_use_without_a_condition_outweighs_one_with():
    text = script("y = self.aux(x)\nif self.training:\n    y = self.aux(y)\nreturn y")
    reason = use(["aux.weight"], {FILE: text.text}).reason
    assert "decides" not in reason and "Guarded" not in reason


def test_a_list_of_modules_is_followed_to_their_call():
    text = script(
        "for i, layer in enumerate(self.layers):\n    if torch.rand(()) < 0.1:\n        continue\n    x = layer(x)\nreturn x",
        "self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(4)])",
    )
    assert (
        "Line 8 may skip it (`continue` if torch.rand(()) < 0.1)" in use(["layers.2.weight"], {FILE: text.text}).reason
    )


INNER = """\
class Adapter:
    def __init__(self):
        self.proj = nn.Linear(2, 2)

    def forward(self, x):
        return self.proj(x)


class Other:
    def __init__(self):
        self.proj = nn.Linear(2, 2)

    def forward(self, x):
        if self.rare:
            return self.proj(x)


class Net:
    def __init__(self):
        self.adapter = Adapter()

    def forward(self, x):
        if self.adapted:
            x = self.adapter(x)
        return x
"""


def test_the_condition_may_stand_around_the_whole_block():
    found = use(["adapter.proj.weight", "adapter.proj.bias"], {FILE: INNER})
    assert found == Hint(FILE, 24, "self.adapter is used here. Guarded by `if self.adapted` at line 23")


def test_a_parameter_of_the_model_itself():
    text = script("return x * self.scale if self.scaled else x", "self.scale = nn.Parameter(torch.ones(2))")
    assert "self.scaled" in use(["scale"], {FILE: text.text}).reason


@pytest.mark.parametrize("source", ["def broken(:", "", "\0", "self.aux", "class Net:\n    aux = 1\n", "(" * 5000])
def test_a_source_that_tells_nothing(source):
    assert use(["aux.weight"], {FILE: source}) is None
    assert frozen_after_wrapping(["aux.weight"], {FILE: source}) == []


def test_names_that_are_no_names():
    assert use(["", ".", "..weight", "a.(b.weight", "0.1"], {FILE: "self.x"}) is None


def test_modules_are_told_once_and_in_order():
    assert modules(["b.weight", "b.bias", "a.0.weight", "scale"]) == ["b", "a.0", "scale"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def main():\n    model = DDP(Net())\n    model.module.aux.requires_grad_(False)\n", 3),
        (
            "model = DistributedDataParallel(Net())\nfor p in model.module.aux.parameters():\n    p.requires_grad = False\n",
            3,
        ),
        ("m = nn.parallel.DistributedDataParallel(n)\nfor p in n.aux.parameters():\n    p.requires_grad_(False)\n", 3),
        (
            "def freeze(m):\n    for p in m.parameters():\n        p.requires_grad = False\n\nmodel = DDP(n)\nfreeze(n.aux)\n",
            6,
        ),
        ("def show(m):\n    print(m)\n\nmodel = DDP(n)\nshow(n.aux)\n", 0),
        ("model = DDP(Net())\nmodel.module.aux.requires_grad_(True)\n", 0),
        ("model = DDP(Net())\nmodel.module.head.requires_grad_(False)\n", 0),
        ("net.aux.requires_grad_(False)\nmodel = DDP(net)\n", 0),
        ("def one():\n    return DDP(Net())\n\ndef two(net):\n    net.aux.requires_grad_(False)\n", 0),
    ],
)
def test_parameters_that_were_frozen_after_the_model_was_wrapped(text, line):
    found = frozen_after_wrapping(["aux.0.weight"], {FILE: text})
    assert found == ([(FILE, line)] if line else [])
