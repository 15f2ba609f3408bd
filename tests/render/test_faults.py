"""The fault picker: its form is made of the faults' own descriptions."""

from __future__ import annotations

import pytest

from ddpnb.notebook import asked
from ddpnb.recording.calls import OPERATIONS
from ddpnb.recording.faults import KINDS
from ddpnb.render import faults
from tests.render.reading import HOSTILE, Reading, harmless


def seen(kind="skip", size=4, armed=(), **more):
    return Reading(faults.faults(kind, size, armed, **more))


def options(page, name):
    """What the list of this name offers."""
    names = [tag for tag, _ in page.tags]
    start = page.tags.index(("select", page.named(name)))
    following = page.tags[start + 1 :]
    end = next((n for n, tag in enumerate(names[start + 1 :]) if tag not in ("option", "optgroup")), None)
    return [attributes["value"] for tag, attributes in following[:end] if tag == "option"]


def chosen(page):
    """The form as it is sent when nobody has changed it."""
    values = {one["name"]: one["value"] for one in page.all("input") if one.get("type") != "checkbox" and "name" in one}
    return {**values, "kind": page.all("form")[0]["data-key"], "op": ""}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_has_its_form(kind):
    page = seen(kind.name)
    assert options(page, "kind") == list(KINDS)
    assert f"{kind.finding} " in page.text
    door = {"op", "seq"} if kind.place == "door" else set()
    late = {"step"} if kind.place != "environment" else set()
    own = {f"value:{one.name}" for one in kind.parameters}
    assert page.fields == {"kind", "ranks"} | door | late | own
    assert all(f"{one.name}: {one.what}" in page.text for one in kind.parameters)
    assert all(page.named(f"value:{one.name}")["value"] == str(one.default) for one in kind.parameters)


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.place == "door"], ids=lambda kind: kind.name)
def test_only_calls_that_it_can_strike_are_offered(kind):
    assert options(seen(kind.name), "op") == ["", *(kind.ops or OPERATIONS)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_form_that_nobody_has_changed_describes_the_fault(kind):
    fault = asked.described(chosen(seen(kind)))
    assert fault.kind == kind and not fault.values


def test_a_field_for_a_number_takes_numbers():
    assert seen("delay").named("value:seconds")["type"] == "number"
    assert "type" not in seen("raise").named("value:message")


def test_a_kind_that_nobody_knows_is_the_first_one():
    assert seen("no such").all("form")[0]["data-key"] == next(iter(KINDS))


def test_rank_one_is_the_usual_victim_if_there_is_one():
    assert ["checked" in one for one in seen(size=3).all("input") if one.get("type") == "checkbox"] == [False, True, False]  # fmt: skip
    assert ["checked" in one for one in seen(size=1).all("input") if one.get("type") == "checkbox"] == [True]


def test_what_is_armed_can_be_healed_one_by_one_or_all():
    page = seen(armed=[("fault skip on rank 1", "struck once"), ("fault nan on rank 0", "")])
    assert "armed faults" in page.labels and "fault skip on rank 1 struck once" in page.text
    healing = [values.get("number") for action, values in page.actions if action == "heal"]
    assert healing == ["0", "1", None]
    assert not [action for action, _ in seen().actions if action == "heal"]


def test_where_nothing_can_be_armed_the_button_is_off():
    (button,) = seen(enabled=False).all("button")
    assert "disabled" in button and button["data-action"] == "inject"


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_nothing_is_taken_for_html(hostile):
    harmless(faults.faults(hostile, 4, [(hostile, hostile[:200])]))
