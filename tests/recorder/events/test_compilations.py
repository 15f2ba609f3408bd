"""What torch.compile compiles on a rank: recorded, and compiled as without ddpnb."""

from __future__ import annotations

import linecache
import sys
import types

import pytest
import torch

from ddpnb.recorder.events import compilations
from ddpnb.recorder.events.compilations import Compilations
from ddpnb.recorder.events.hooks import put_in_place
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import RUN_ACTIVE, BoxReader
from ddpnb.recording.events.runs import MOST_COMPILATIONS, Compilation, HooksDetached


def callbacks():
    """``torch._dynamo`` is imported where it is used first: it takes 2 s of the processor."""
    return torch._dynamo.callback.callback_handler


@pytest.fixture
def box(tmp_path):
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    box.set_run(1, RUN_ACTIVE)
    return box


@pytest.fixture
def hooks(box):
    torch._dynamo.reset()
    hooks = Compilations(box)
    put_in_place(hooks)
    yield hooks
    hooks.remove()
    assert not callbacks().start_callbacks and not callbacks().end_callbacks
    torch._dynamo.reset()


def events(box, kind=Compilation):
    return [event for event in BoxReader(box.memory).events() if isinstance(event, kind)]


def branches(x, scale):
    x = x * scale
    if x.sum() > 100:
        return x - 1
    return x + 1


def used():
    """A function that is compiled again for another number, and whose graph breaks."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    made = torch.compile(branches, backend="eager")
    results = [made(torch.full((3,), float(size)), scale).tolist() for size, scale in ((1, 2), (1, 2), (90, 2), (1, 3))]
    return results, {kind: dict(found) for kind, found in torch._dynamo.utils.counters.items()}


def test_what_is_compiled_again_and_where_its_graph_breaks(box, hooks):
    used()
    first, second = (one for one in events(box) if one.site.line == branches.__code__.co_firstlineno)
    assert (first.site.file, first.site.function, first.state) == (__file__, "branches", "done")
    assert (first.again, first.reason, first.part, first.given_up) == (False, "", "", "")
    assert [(cut.file, cut.line) for cut in first.breaks] == [(__file__, first.site.line + 2)]
    assert second.again and "scale == 2" in second.reason and "  " not in second.reason
    rest = [one for one in events(box) if one.site.line != first.site.line]
    assert {one.site.function for one in rest} == {"branches"} and len(rest) >= 2
    assert all(one.began_ns < one.ended_ns for one in events(box))


def test_it_is_compiled_as_without(box, hooks):
    watched = used()
    hooks.remove()
    plain = used()
    assert watched == plain and plain[1]["frames"]["ok"] >= 4


def test_the_backward(box, hooks):
    made = torch.compile(lambda x: (x * x).sum(), backend="aot_eager")
    made(torch.ones(2, requires_grad=True)).backward()
    forward, *backward = events(box)
    assert forward.part == "" and all(one.site == forward.site for one in backward)
    assert {one.part for one in backward} <= {"lazy backward"}


@pytest.mark.filterwarnings("ignore:Guards may run slower")
def test_a_module_of_a_library_is_at_the_line_that_calls_it(box, hooks):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model.compile(backend="eager")
    model(torch.ones(1, 2))
    (event,) = events(box)
    assert linecache.getline(__file__, event.site.line).strip() == "model(torch.ones(1, 2))"
    assert event.site.file == __file__ and event.library


def test_what_is_given_up(box, hooks):
    def fails(graph, _):
        raise RuntimeError("no such\nbackend")

    with pytest.raises(Exception, match="no such"):
        torch.compile(lambda x: x + 1, backend=fails)(torch.ones(1))
    (event,) = events(box)
    assert "no such" in event.given_up and "\n" not in event.given_up and event.state == "done"


def test_while_it_compiles_the_event_is_open(box, hooks):
    seen = []

    def backend(graph, _):
        seen.extend(events(box))
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(1))
    assert [one.state for one in seen] == ["open"]


def test_it_is_watched_again_after_a_reset(box, hooks):
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    hooks.new_run()
    assert len(events(box)) == 1 and callbacks().start_callbacks.count(hooks._starts) == 1


def test_so_many_of_a_run(box, hooks):
    hooks._count = MOST_COMPILATIONS
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    assert events(box) == []
    hooks.new_run()
    torch.compile(lambda x: x + 2, backend="eager")(torch.ones(1))
    assert len(events(box)) == 1


def test_another_torch(box, hooks, monkeypatch):
    """Callbacks without arguments, frames and counters of other names."""
    monkeypatch.setattr(compilations, "_COMPILER", "elsewhere")
    monkeypatch.setattr(compilations, "_utils", lambda: types.ModuleType("utils"))
    hooks._starts()
    hooks._ends()
    (event,) = events(box)
    assert (event.compile_id, event.breaks, event.number) == ("", (), 1)


def test_a_failure_leaves_the_programs_own_callbacks_alone(box, hooks, monkeypatch, capsys):
    called = []
    callbacks().start_callbacks.append(lambda _: called.append("start"))
    callbacks().end_callbacks.append(lambda _: called.append("end"))
    monkeypatch.setattr(compilations, "_counters", lambda: 1 / 0)
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).tolist() == [2]
    assert called == ["start", "end"] and len(events(box, HooksDetached)) == 1
    assert "failed and was disabled" in capsys.readouterr().err
    callbacks().start_callbacks.clear()
    callbacks().end_callbacks.clear()


def test_a_forked_child_records_nothing(box, hooks):
    box.silence()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    assert events(box) == []


def test_the_compiler_is_not_imported(box, monkeypatch):
    handler = callbacks()
    monkeypatch.delitem(sys.modules, "torch._dynamo.callback")
    hooks = Compilations(box)
    put_in_place(hooks)
    hooks.new_run()
    assert "torch._dynamo.callback" not in sys.modules and not handler.start_callbacks
    hooks.remove()
