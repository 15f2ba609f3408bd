"""Parts of a program that can be left out."""

from __future__ import annotations

import pickle

import pytest

from ddpnb.errors import UsageError
from ddpnb.recorder.process.components import Selected, called_components, component
from tests.victims import parts

called = []


@component
def first():
    """The first part."""
    called.append("first")
    return 1


@component(name="last", requires=["first"])
def second(value):
    called.append(value)


def both(value):
    helper()
    second(value)


def helper():
    return first()


@pytest.fixture(autouse=True)
def _none_called():
    called.clear()


def test_outside_of_a_bisection_it_is_the_function():
    assert (first(), called, first.__doc__, first.__name__) == (1, ["first"], "The first part.", "first")
    assert (second.name, second.requires) == ("last", ("first",))


def test_a_component_that_is_off_is_left_out():
    Selected(both, [first, second], ["last"], (7,))()
    assert called == [7]
    assert first() == 1  # afterwards everything is as before


def test_functions_in_order():
    Selected(None, [first, component(helper)], ["first", "helper"], ())()
    assert called == ["first", "first"]


def test_everything_is_on_again_after_an_exception():
    with pytest.raises(TypeError):
        Selected(both, [first, second], [], ())()
    assert first() == 1


def test_the_components_that_a_function_calls():
    assert called_components(both) == [first, second]
    assert [one.name for one in called_components(parts.train)] == ["load", "evaluate", "save_best", "logging"]


def test_it_can_be_sent_to_ranks():
    assert pickle.loads(pickle.dumps(parts.load)) is parts.load
    by_value = component(print)
    assert pickle.loads(pickle.dumps(by_value)).function is print


@pytest.mark.parametrize("wrong", [3, first])
def test_what_is_no_function_is_refused(wrong):
    with pytest.raises(UsageError, match="cannot be a component"):
        component(wrong)
