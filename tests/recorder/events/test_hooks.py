"""Hooks around functions: calls go through untouched, a failing look takes them away, what was there comes back."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import re
import sys
import traceback
import types
import warnings
import weakref

import pytest

from ddpnb.recorder.events import hooks as hooks_module
from ddpnb.recorder.events.hooks import Hooks, put_in_place
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.stacks.user_frames import is_own_file, is_user_file
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events import Unknown
from ddpnb.recording.events.models import CheckpointSaved, ModelWrapped, RngRestored, StateLoaded
from ddpnb.recording.events.runs import HooksDetached
from ddpnb.recording.events.startup import StoreOpened


@pytest.fixture
def box(tmp_path):
    return BlackBox(str(tmp_path / "rank0.box"), 0)


class Watch(Hooks):
    """Hooks that are put in place by hand."""

    def install(self):
        pass


class Parent:
    def inherited(self):
        return "inherited"


class Owner(Parent):
    def __init__(self):
        self.calls = []

    def call(self, *args, **kwargs):
        """What it does."""
        self.calls.append((args, kwargs))
        if args[:1] == ("raise",):
            raise KeyError(*args)
        return args, kwargs


@pytest.fixture
def owner():
    """A class of which nothing is left after the test."""
    return type("Owner", (Owner,), {"call": Owner.call})


def events(box):
    return BoxReader(box.memory).events()


def doubled(original):
    def call(*args, **kwargs):
        return original(*args, **kwargs), "and more"

    return call


def test_arguments_results_and_exceptions_pass(box, owner):
    hooks, seen = Watch(box), []
    hooks.before(owner, "call", lambda *args, **kwargs: seen.append(("before", args[1:], kwargs)))
    hooks.after(owner, "call", lambda result, *args, **kwargs: seen.append(("after", result, args[1:], kwargs)))
    one, given = owner(), object()
    result = one.call(1, given, look=2, owner=3, name=4, original=5)
    assert result == ((1, given), {"look": 2, "owner": 3, "name": 4, "original": 5})
    assert result[0][1] is given
    assert seen == [("before", *result), ("after", result, *result)]
    seen.clear()
    with pytest.raises(KeyError) as error:
        one.call("raise")
    assert error.value.args == ("raise",)
    assert error.value.__context__ is None
    assert seen == [("before", ("raise",), {})]  # there is no result to look at
    assert len(one.calls) == 2


def test_a_hook_looks_like_what_it_stands_for(box, owner):
    hooks, original = Watch(box), owner.call
    hooks.before(owner, "call", lambda *_, **__: None)
    hooks.replace(owner, "call", doubled)
    assert (owner.call.__name__, owner.call.__doc__) == ("call", "What it does.")
    assert owner.call.__qualname__ == original.__qualname__
    assert owner().call(1) == (((1,), {}), "and more")


def test_what_was_there_comes_back(box, owner):
    module = types.ModuleType("module")
    module.function = len
    hooks, original = Watch(box), owner.call
    before = dict(vars(owner))
    hooks.before(owner, "call", lambda *_: None)
    hooks.after(owner, "call", lambda *_: None)
    hooks.replace(owner, "inherited", doubled)
    hooks.before(module, "function", lambda *_: None)
    hooks.before(owner, "is not there", lambda *_: None)
    undone = []
    hooks.on_removal(lambda: undone.append(True))
    assert owner().inherited() == ("inherited", "and more")
    hooks.remove()
    hooks.remove()
    assert dict(vars(owner)) == before
    assert owner.call is original
    assert module.function is len
    assert undone == [True]
    assert owner().inherited() == "inherited"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0), (0, 2, 1), (2, 0, 1)])
def test_sets_of_hooks_on_one_function_go_in_any_order(box, owner, order):
    original, before = owner.call, dict(vars(owner))
    seen, sets = [], [Watch(box) for _ in range(3)]
    for number, hooks in enumerate(sets):
        hooks.before(owner, "call", lambda *_, number=number: seen.append(number))
        hooks.before(owner, "inherited", lambda *_, number=number: seen.append(number))
    left = {0, 1, 2}
    for number in order:
        sets[number].remove()
        left.discard(number)
        seen.clear()
        owner().call()
        owner().inherited()
        assert seen == sorted(left, reverse=True) * 2
    assert owner.call is original
    assert dict(vars(owner)) == before


class InModules(Hooks):
    """Hooks on ``lends.call``."""

    def __init__(self, box, lends, seen):
        super().__init__(box)
        self.lends, self.seen = lends, seen

    def install(self):
        self.before(self.lends, "call", lambda *_: self.seen.append(self))


@pytest.fixture
def modules(monkeypatch):
    """A module with a function, one of the user's and one of a library that have imported it."""
    lends, users, library = (types.ModuleType(name) for name in ("lends", "users", "library"))
    lends.call = library.call = users.call_it = library.other = library.__call__ = lambda *_: None
    users.__file__, library.__file__ = "/home/user/train.py", os.__file__
    for module in (lends, users, library):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return lends, users, library


def test_names_by_which_modules_have_imported_a_function_are_replaced_too(box, modules):
    lends, users, library = modules
    original, seen = lends.call, []
    one, other = (InModules(box, lends, seen) for _ in range(2))
    put_in_place(one)
    put_in_place(other)
    assert lends.call is library.call is users.call_it
    assert library.__call__ is original  # as threading.__excepthook__: the standard library keeps originals there
    users.call_it()
    assert seen == [other, one]
    users.later = lends.call
    one.remove()
    users.later()
    assert seen == [other, one, other]
    other.remove()
    assert lends.call is library.call is users.call_it is users.later is original
    put_in_place(one)
    assert lends.call is library.call is users.call_it is not original
    one.remove()


def test_they_can_be_put_back(box, owner):
    hooks, seen = Watch(box), []
    for turn in range(3):
        hooks.before(owner, "call", lambda *_, turn=turn: seen.append(turn))
        owner().call()
        hooks.remove()
        owner().call()
    assert seen == [0, 1, 2]


def test_another_ones_patch_on_top_stays(box, owner):
    hooks, seen, original = Watch(box), [], owner.call
    hooks.before(owner, "call", lambda *_: seen.append("ours"))
    ours = owner.call
    owner.call = lambda *args: (seen.append("theirs"), ours(*args))[1]
    theirs = owner.call
    owner().call(1)
    hooks.remove()
    assert owner.call is theirs
    assert owner().call(2) == ((2,), {})
    assert seen == ["theirs", "ours", "theirs"]
    owner.call = original


def test_who_still_holds_a_hook_is_served(box, owner):
    """``from torch.nn.utils import clip_grad_norm_`` keeps what was there then."""
    seen = []
    for put in (Watch.before, Watch.after):
        hooks = Watch(box)
        put(hooks, owner, "call", lambda *_: seen.append("looked"))
        held = owner.call
        hooks.remove()
        assert held(owner(), 1) == ((1,), {})
    hooks = Watch(box)
    hooks.replace(owner, "call", doubled)
    held = owner.call
    hooks.remove()
    assert held(owner(), 1) == ((1,), {})
    assert seen == []


@pytest.mark.parametrize("put", ["before", "after", "guarded"])
def test_a_failing_look_takes_its_hooks_away_and_says_so_once(box, owner, put, capsys):
    hooks, other, seen, original = Watch(box), Watch(box), [], owner.call
    other.before(owner, "call", lambda *_: seen.append("other"))
    hooks.before(owner, "inherited", lambda *_: seen.append("inherited"))

    def fail(*_args, **_kwargs):
        raise ZeroDivisionError("of ours")

    if put == "guarded":
        guarded = hooks.guarded(fail)
        hooks.replace(owner, "call", lambda original: lambda *args: (guarded(), original(*args))[1])
    else:
        getattr(hooks, put)(owner, "call", fail)
    held = owner.call
    one = owner()
    for turn in range(3):
        assert one.call(turn) == ((turn,), {})
        assert held(one, turn) == ((turn,), {})
    assert len(one.calls) == 6
    said = capsys.readouterr().err
    assert said.count("a hook failed and was disabled") == 1
    assert "ZeroDivisionError: of ours" in said and said.count("\n") == 1
    told = [event for event in events(box) if isinstance(event, HooksDetached)]
    assert len(told) == 1
    assert "of ours" in told[0].error
    one.inherited()  # these stood and fell with it; the other set stands
    assert set(seen) == {"other"}
    other.remove()
    assert owner.call is original


def test_a_failure_in_the_call_of_the_user_is_not_ours(box, owner, capsys):
    hooks, seen = Watch(box), []
    hooks.after(owner, "call", lambda *_: seen.append("looked"))
    for _ in range(2):
        with pytest.raises(KeyError):
            owner().call("raise")
    owner().call()
    assert seen == ["looked"]
    assert capsys.readouterr().err == ""


def test_a_failure_is_survived_when_nothing_can_be_said(box, owner, monkeypatch):
    """The box may be full and the script may have closed its streams."""
    hooks = Watch(box)
    hooks.before(owner, "call", lambda *_: 1 / 0)

    class Closed:
        def write(self, _text):
            raise ValueError("I/O operation on closed file.")

    monkeypatch.setattr(sys, "stderr", Closed())
    monkeypatch.setattr(box, "emit", lambda *_: 1 / 0)
    assert owner().call(1) == ((1,), {})
    assert owner().call(2) == ((2,), {})


def test_what_the_user_raises_through_a_look_is_not_held_up(box, owner):
    """Ctrl-C while a look is at work is the user's."""
    hooks = Watch(box)

    def interrupted(*_):
        raise KeyboardInterrupt

    hooks.before(owner, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        owner().call()


def test_a_silent_box_is_not_written(box, owner):
    hooks, seen = Watch(box), []
    hooks.before(owner, "call", lambda *_: seen.append("before"))
    hooks.after(owner, "call", lambda *_: seen.append("after"))
    guarded = hooks.guarded(lambda *_: seen.append("guarded"))
    box.silence()
    assert owner().call(1) == ((1,), {})
    guarded()
    assert seen == []


def test_an_event_that_comes_at_every_step_is_told_a_few_times(box):
    hooks = Watch(box)

    def load(number):
        hooks.emit(StateLoaded(what="model", given=number), depth=1)

    for _ in range(50):
        load(1)
    load(2)
    assert [event.given for event in events(box)] == [1, 1, 1, 1, 2]
    hooks.new_run()
    load(1)
    assert len(events(box)) == 6


def test_the_same_event_on_another_line_is_another(box):
    hooks = Watch(box)
    for _ in range(6):
        hooks.emit(RngRestored(), depth=1)
        hooks.emit(RngRestored(), depth=1)
    lines = [event.site.line for event in events(box)]
    assert len(lines) == 8
    assert len(set(lines)) == 2


def test_events_stop_before_they_fill_memory(box):
    hooks = Watch(box)
    for number in range(10_500):
        hooks.emit(CheckpointSaved(path=f"step{number}.pt"))
    assert len(hooks._seen) == 10_000


def test_an_event_knows_the_users_line(box, owner):
    hooks = Watch(box)
    hooks.before(owner, "call", lambda *_: hooks.emit(Unknown(named="called")))
    hooks.after(owner, "call", lambda *_: hooks.emit(Unknown(named="returned")))
    line = sys._getframe().f_lineno + 1
    owner().call()
    for event in events(box):
        assert (event.site.file, event.site.line) == (__file__, line)
        assert event.site.function == "test_an_event_knows_the_users_line"


def test_a_span_tells_how_the_call_ended(box):
    hooks = Watch(box)
    with hooks.span(ModelWrapped(wrapper="Net")) as span:
        span.learned = ModelWrapped(parameters=3)
    with pytest.raises(OSError, match="no space"), hooks.span(StoreOpened()):
        raise OSError("no space")
    first, second = events(box)
    assert isinstance(first, ModelWrapped) and (first.wrapper, first.parameters) == ("Net", 3)
    assert (first.state, second.state) == ("done", "failed")
    assert second.error == "OSError: no space"


def test_a_span_that_cannot_be_written_lets_the_call_through(box, monkeypatch, capsys):
    hooks = Watch(box)
    monkeypatch.setattr(box, "begin", lambda *_: 1 / 0)
    done = []
    for _ in range(2):
        with hooks.span(ModelWrapped()):
            done.append(True)
    assert done == [True, True]
    assert capsys.readouterr().err.count("a hook failed and was disabled") == 1


def test_hooks_that_are_gone_hold_nothing(box, owner):
    hooks = Watch(box)
    hooks.before(owner, "call", lambda *_: None)
    hooks.after(owner, "inherited", lambda *_: None)
    hooks.remove()
    gone = weakref.ref(hooks)
    del hooks
    gc.collect()
    assert gone() is None


def test_own_code_alone_is_hidden_from_the_compiler(box, monkeypatch):
    """Not that of ``contextlib``, which decorates functions of ours too: all context managers were hidden with it."""
    hidden = set()
    monkeypatch.setattr(
        hooks_module, "hide", lambda function, *, below: hidden.add((function.__code__.co_filename, below))
    )
    monkeypatch.setattr(hooks_module, "_HIDDEN", {"ddpnb.recorder.process.script"})
    put_in_place(Watch(box))
    assert all(is_own_file(file) and below for file, below in hidden)
    names = {os.path.basename(file) for file, _ in hidden}
    assert {"hooks.py", "blackbox.py", "base.py"} <= names and "script.py" not in names


@pytest.mark.parametrize("hook", ["before", "after", "failing", "replace"])
def test_a_function_in_two_modules_is_pickled(box, monkeypatch, hook):
    """By its name in the module that defines it, as ``torch.distributed.new_group``; it must be the same object there."""
    defines, imports = types.ModuleType("defines"), types.ModuleType("imports")
    exec("def made(): return 7", vars(defines))
    imports.made = original = defines.made
    for module in (defines, imports):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    hooks = Watch(box)
    do = doubled if hook == "replace" else lambda *_: None
    hooks.install = lambda: getattr(hooks, hook)(defines, "made", do)
    put_in_place(hooks)
    assert imports.made is not original
    assert pickle.loads(pickle.dumps(imports.made)) is imports.made is defines.made
    hooks.remove()
    put_in_place()
    assert imports.made is defines.made is original


def test_the_compiler_passes_them_by(box):
    """Its frames are not ours to be in: nothing is warned about, nothing recompiled, the numbers are the same."""
    import torch
    import torch._dynamo

    module = types.ModuleType("module")
    module.scale = lambda x: x * 2
    hooks, seen, compiled = Watch(box), [], []

    def look(*_):
        seen.append(sorted(vars(box)))

    def count(graph, _inputs):
        compiled.append(graph)
        return graph.forward

    hooks.before(module, "scale", look)
    hooks.after(module, "scale", look)
    hooks.replace(module, "scale", doubled)
    torch._dynamo.reset()
    step = torch.compile(lambda x: module.scale(x) + 1, backend=count, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert step(torch.ones(2)).tolist() == [3, 3]  # a part of what is compiled, it is not looked at
        assert seen == []
        assert module.scale(torch.ones(1)) == (torch.full((1,), 2.0), "and more")
        assert len(seen) == 2
        hooks.remove()
        assert step(torch.ones(2)).tolist() == [3, 3]
    assert len(compiled) <= 2
    torch._dynamo.reset()


@pytest.mark.parametrize("hook", ["before", "after", "failing", "replace"])
def test_a_warning_of_what_is_wrapped_names_the_line_that_called_it(box, owner, hook):
    """As without us: also filters by module go by that line."""

    def deprecated(self):
        warnings.warn("it is old", FutureWarning, stacklevel=2)

    owner.deprecated = deprecated
    watch = Watch(box)
    getattr(watch, hook)(owner, "deprecated", doubled if hook == "replace" else lambda *_: None)
    with pytest.warns(FutureWarning, match="it is old") as told:
        owner().deprecated()
    watch.remove()
    assert [one.filename for one in told] == [__file__]


@pytest.mark.parametrize("hook", ["before", "after", "failing", "replace"])
def test_a_traceback_through_a_hook_names_no_file_that_does_not_exist(box, owner, hook, caplog, capsys):
    def fails(self):
        raise ValueError("bad")

    def forwards(original):
        def replaced(*args, **kwargs):
            return original(*args, **kwargs)

        return replaced

    owner.fails = fails
    watch = Watch(box)
    getattr(watch, hook)(owner, "fails", forwards if hook == "replace" else lambda *_: None)
    try:
        owner().fails()
    except ValueError as error:
        logging.getLogger().exception("it failed")
        traceback.print_exc()
        frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    watch.remove()
    hooks = [file for file in frames if is_own_file(file)]
    assert len(frames) > len(hooks) > 0
    assert not any(map(is_user_file, hooks))
    printed = re.findall(r'File "(.*?)"', caplog.text + capsys.readouterr().err)
    assert len(printed) >= 2 * len(frames)
    assert all(file.startswith("<ddpnb ") or os.path.exists(file) for file in printed)
