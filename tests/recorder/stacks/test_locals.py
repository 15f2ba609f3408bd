"""Describing variables is bounded in work, not only in text, and runs no code of the user's."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from functools import cache

import numpy as np
import pytest
import torch

from ddpnb.recorder.channel import threads
from ddpnb.recorder.stacks import evaluation, values
from ddpnb.recorder.stacks.locals import describe_locals
from ddpnb.recorder.stacks.values import MAX_TEXT, Allowance, Writer, describe
from ddpnb.recording.stacks import NOT_SHOWN, Frame, Stack

MILLION = 1_000_000


def text(value):
    return Writer(MAX_TEXT, 6, 3, Allowance(10.0)).text(value)


def never(*_, **__):
    raise AssertionError("code of the user's ran")


class Meta(type):
    __eq__ = __getattr__ = __instancecheck__ = __subclasscheck__ = never
    __hash__ = never
    shape = dtype = property(never)


class OfMeta(metaclass=Meta):
    pass


class Proxy:
    __class__ = property(never)
    __repr__ = __str__ = __len__ = __iter__ = __getattribute__ = __eq__ = never
    __hash__ = None


class Text(str):
    __slots__ = ()
    __repr__ = __str__ = __len__ = __getitem__ = __eq__ = startswith = never
    __hash__ = str.__hash__


class Number(int):
    __repr__ = __str__ = __index__ = bit_length = never


class Items(list):
    __repr__ = __len__ = __iter__ = never


class Table(dict):
    __repr__ = __len__ = __iter__ = items = keys = __getitem__ = never


class Key:
    __hash__ = object.__hash__
    __lt__ = __repr__ = never


class Failure(Exception):
    args = property(never)
    __str__ = __repr__ = never


class Functions(torch.Tensor):
    __torch_function__ = classmethod(never)
    shape = dtype = device = property(never)


class Dispatches(torch.Tensor):
    __torch_dispatch__ = classmethod(never)
    __torch_function__ = classmethod(never)


class Like:
    shape = dtype = property(never)


HOSTILE = {
    "metaclass": OfMeta,
    "proxy": Proxy,
    "str": lambda: Text("x"),
    "int": lambda: Number(3),
    "list": lambda: Items([1]),
    "dict": lambda: Table(a=1),
    "exception": lambda: Failure("argument", Text("other")),
    "tensor with __torch_function__": lambda: torch.ones(2, 3).as_subclass(Functions),
    "tensor with __torch_dispatch__": lambda: torch.Tensor._make_subclass(Dispatches, torch.ones(2)),
    "array-like": Like,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_code_of_the_users_runs(kind):
    value = HOSTILE[kind]()
    inside = {Key(): value}
    shown = describe_locals(sys._getframe())
    del inside
    assert shown["value"] and "AssertionError" not in shown["value"], shown
    assert shown["inside"] and "AssertionError" not in shown["inside"], shown


def test_subclasses_of_tensors_are_described_by_what_torch_itself_knows():
    assert text(HOSTILE["tensor with __torch_function__"]()) == "Functions[2, 3] float32 cpu"
    assert text(HOSTILE["tensor with __torch_dispatch__"]()).endswith("Dispatches>")
    assert text(torch.nn.Parameter(torch.tensor(0.5))) == "0.5 (a float32 tensor)"
    assert (
        text([torch.tensor(False), torch.tensor([[12345678]])])
        == "[0 (a bool tensor), 12345678 (an int64 tensor of shape [1, 1])]"
    )


def test_a_key_is_not_compared():
    assert text({Key(): 1, Key(): 2}).count("Key>: ") == 2
    assert text({Key(), Key()}).count("Key>") == 2


@cache
def table():
    return dict.fromkeys(map(str, range(MILLION)))


def digits():
    return 1 << 3_321_928


LARGE = {
    "bytes": lambda: bytes(100 << 20),
    "bytearray": lambda: bytearray(100 << 20),
    "str": lambda: "\x00" * (50 << 20),
    "int": digits,
    "dict": table,
    "set": lambda: set(table()),
    "list of dicts": lambda: [table()] * 6,
    "exception": lambda: ValueError("\x00" * (50 << 20), digits()),
    "slice": lambda: slice(digits(), digits(), digits()),
    "names": lambda: None,
}


@pytest.mark.parametrize("kind", LARGE)
def test_the_work_does_not_grow_with_the_value(kind):
    namespace = {"value": LARGE[kind](), "sys": sys}
    if kind == "names":
        namespace |= {f"__{n}": n for n in range(MILLION)}
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # as a script may: an integer of a million digits then takes some 40 s
    try:
        exec("frame = sys._getframe()", namespace)
        took = []
        for _ in range(3):
            began = time.thread_time()
            shown = describe_locals(namespace["frame"])
            took.append(time.thread_time() - began)
    finally:
        sys.set_int_max_str_digits(before)
        namespace.pop("frame", None)
    assert len(shown["value"]) <= MAX_TEXT + 1
    assert min(took) < 0.05, shown


def test_deleted_entries_are_not_walked_through():
    table = dict.fromkeys(range(MILLION))
    for key in range(MILLION - 1):
        del table[key]
    assert text(table) == "<dict of 1>"


def test_how_values_read():
    assert text([1, [2, [3, [4]]]]) == "[1, [2, [3, <list of 1>]]]"
    assert text(list(range(9))) == "[0, 1, 2, 3, 4, 5, … 3 more]"
    assert text((1,)) == "(1,)" and text(()) == "()" and text(set()) == "set()" and text({}) == "{}"
    assert text({"b", "a"}) == "{'a', 'b'}" and text(frozenset({1})) == "frozenset({1})"
    assert text(set(range(7))) == "<set of 7>"  # which come first is chance, and differs from rank to rank
    assert text(range(3)) == "range(0, 3)" and text(slice(1, None)) == "slice(1, None, None)"
    assert text(torch.Size([2, 3])) == "torch.Size([2, 3])" and text(torch.float16) == "torch.float16"
    assert text(ValueError("no", 3, object())) == "ValueError('no', 3)"
    assert text("x" * 500) == "'" + "x" * 159 + "…"
    assert text(1 << 600) == "<int of 601 bits>"
    assert text(OrderedDict(a=1)) == "<collections.OrderedDict>"
    assert text(np.zeros((2, 3))) == "<ndarray (2, 3) float64>"


@pytest.mark.parametrize(("elements", "left"), [(1, 0), (1000, 0), (1000, 8), (5000, 4)])
def test_a_tensor_whose_memory_was_freed(elements, left):
    """As FSDP frees that of parameters between two uses: to read it would end the process."""
    tensor = torch.ones(elements)
    tensor.untyped_storage().resize_(left)
    assert describe_locals(sys._getframe(), values=True)["tensor"] == f"tensor[{elements}] float32 cpu"
    assert describe(tensor, 4000) == f"tensor[{elements}] float32 cpu"


class Clock:
    """Each time that it is read half a millisecond has passed."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 500_000
        return self.now


def test_what_there_is_no_time_for_is_not_shown(monkeypatch):
    monkeypatch.setattr(values, "thread_time_ns", Clock())
    monkeypatch, first, second, third, fourth = None, 1, 2, 3, 4
    shown = describe_locals(sys._getframe())
    assert shown["first"] == "1" and shown["fourth"] == NOT_SHOWN, shown
    assert first < second < third < fourth and monkeypatch is None


def test_all_frames_together_have_a_time(monkeypatch):
    monkeypatch.setattr(values, "thread_time_ns", Clock())
    seen = []

    def down(levels):
        value = levels
        if levels:
            return down(levels - 1)
        looker = threading.Thread(target=lambda: seen.extend(threads.stacks()))
        looker.start()
        looker.join()
        return value

    down(40)
    held = [frame["locals"]["value"] for frame in seen[0]["frames"] if frame["function"] == "down"]
    assert held[0] == NOT_SHOWN  # the outermost
    assert held[-1] == "0" and held.count(NOT_SHOWN) > 10
    assert [one["main"] for one in seen] == [True]  # the rest are left out


def test_the_norm_of_a_tensor_is_that_of_all_of_it():
    tensor = torch.arange(100_000, dtype=torch.float32) / 1e5
    expected = f" norm {tensor.to(torch.float64).norm().item():.6g}"
    assert describe_locals(sys._getframe(), values=True)["tensor"].endswith(expected)


def test_what_a_rank_names_does_not_drive_a_terminal():
    namespace = {"sys": sys, "\x1b]0;title\x07": 1, "\x1b[31m" + "n" * 500: "\x1b[31m"}
    exec("frame = sys._getframe()", namespace)
    shown = describe_locals(namespace["frame"])
    told = {"locals": {"\x1b]0;": "1", "\udc80": 2}, "function": "\x07f", "thread": "\x1b[31mmain"}
    frame, stack = Frame.from_json(told), Stack.from_json(told)
    for name in (*shown, *shown.values(), *frame.locals, frame.function, stack.thread):
        assert name.isprintable(), repr(name)
    assert max(map(len, shown)) <= 80


def test_a_namespace_of_the_users_own_is_not_asked():
    seen = {}
    space = Plain(look=lambda: seen.update(describe_locals(sys._getframe(1))), value=3)
    exec("value; look()", {}, space)
    assert seen == {"value": "3"}


class Plain(Table):
    __getitem__ = dict.__getitem__


def test_a_value_that_was_asked_for_is_bounded_too():
    small = {"a": [1, 2], "b": "text"}
    assert describe(small, 4000) == repr(small)
    large = dict.fromkeys(map(str, range(20_000)), "x" * 100)
    began = time.thread_time()
    shown = describe([large] * 1000, 4000)
    assert len(shown) <= 4001 and time.thread_time() - began < 1.0
    assert describe(digits(), 4000) == "<int of 3321929 bits>"
    assert evaluation._is_plain(1 << 63) and not evaluation._is_plain(1 << 64)
    assert evaluation.evaluate("10**5000", 0, 5.0, {})["text"] == "<int of 16610 bits>"


def test_the_work_does_not_grow_with_slices_in_slices():
    """Three at each level: 25 levels took hours, with the interpreter lock held."""
    value = 1
    for _ in range(60):
        value = slice(value, value, value)
    calls = 0

    class Counting(Writer):
        def _any(self, *given):
            nonlocal calls
            calls += 1
            return super()._any(*given)

    assert "<slice>" in Counting(MAX_TEXT, 6, 3, Allowance(1)).text(value)
    assert calls < 500
    assert text([slice(1, None), range(3)]) == "[slice(1, None, None), range(0, 3)]"


def test_the_class_of_an_exceptions_argument_is_not_compared():
    class Kind(type):
        __eq__ = __hash__ = never

    class Argument(metaclass=Kind):
        pass

    assert text(ValueError(Argument(), "a", 3)) == "ValueError('a', 3)"


@pytest.mark.parametrize("instead", [None, 7, object()], ids=["nothing", "a number", "an object"])
def test_a_script_may_put_anything_in_the_place_of_a_module(monkeypatch, instead):
    class Plain:
        pass

    class Tensor(torch.Tensor):
        pass

    monkeypatch.setitem(sys.modules, "numpy", instead)
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", instead)
    assert text(Plain()).endswith("Plain>")
    assert text(torch.ones(2).as_subclass(Tensor)) == "Tensor[2] float32 cpu"


def test_what_ipython_keeps_beside_the_variables_of_cells_is_left_out():
    namespace = {"_ih": [""], "_oh": {}, "_dh": [], "In": [""], "Out": {}, "_": 1, "__": 2, "_i": "", "_i1": "", "_12": 3,
                 "exit": object(), "step": 4, "_mine": 5, "_i2x": 6,
                 # by which ipyparallel calls what runs a cell
                 "_e81c5b25_b18d65bd7731d1a6125f6e2b_20795_24_args": ({"environment": {}},),
                 "_e81c5b25_b18d65bd7731d1a6125f6e2b_20795_24_kwargs": {},
                 "_e81c5b25_b18d65bd7731d1a6125f6e2b_20795_24_result": None,
                 "_0de6ff51604698_f": 1}  # fmt: skip
    namespace["sys"], namespace["describe_locals"] = sys, describe_locals
    exec("shown = describe_locals(sys._getframe())", namespace)
    assert namespace["shown"] == {"step": "4", "_mine": "5", "_i2x": "6"}
    exec("shown = describe_locals(sys._getframe(), values=True)", namespace)
    assert namespace["shown"]["sys"] == "<module sys>"
    assert namespace["shown"]["describe_locals"] == "<function describe_locals>"
    plain = {"_": 1, "step": 4, "sys": sys, "describe_locals": describe_locals}
    exec("shown = describe_locals(sys._getframe())", plain)
    assert plain["shown"] == {"_": "1", "step": "4"}  # a function's own _
