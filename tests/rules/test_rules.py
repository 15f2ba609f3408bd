"""Which rules are asked, and which of their findings are kept."""

from __future__ import annotations

import pytest

from ddpnb.model.findings import Finding
from ddpnb.rules import rules
from ddpnb.rules.finding_types import type_of
from ddpnb.rules.rules import Row
from tests.rules.recordings import Rank, line, record, recorded

RECORDING = record(Rank(0, 2), Rank(1, 2))


def finding(code, severity="error", place=1):
    return Finding(type_of(code), code, (0,), where=((0, line(place)),), severity=severity)


def test_a_run_in_which_all_is_well():
    taken = recorded(lambda rank: rank.calls("all_reduce", line(3)).finishes())
    assert rules.find(taken, [], frozenset()) == []


@pytest.fixture
def found(monkeypatch):
    """The codes that are kept of what these rules find, beside these failures."""

    def of(*table, failures=()):
        monkeypatch.setattr(rules, "_rules", lambda _: table)
        return [one.code for one in rules.find(RECORDING, failures, frozenset())]

    return of


def gives(*findings, **when):
    return Row(lambda _: list(findings), **when)


def test_errors_come_first_else_the_order_of_the_table(found):
    table = gives(finding("DDP502", "warning")), gives(finding("DDP317", "note"), finding("DDP503"))
    assert found(*table, gives(finding("DDP703", "warning"))) == ["DDP503", "DDP502", "DDP703", "DDP317"]


def test_an_effect_is_not_looked_for_after_an_error(found):
    effect = gives(finding("DDP405"), effect=True)
    assert found(gives(finding("DDP403")), effect) == ["DDP403"]
    assert found(gives(finding("DDP703", "warning")), effect) == ["DDP405", "DDP703"]


def test_some_rules_are_only_for_runs_without_failures(found):
    alone = gives(finding("DDP411"), alone=True)
    assert (found(alone), found(alone, failures=[finding("DDP312")])) == (["DDP411"], [])


def test_the_first_rule_that_finds_a_type_shows_the_cause(found):
    assert found(gives(finding("DDP501"), finding("DDP501")), gives(finding("DDP501"))) == ["DDP501", "DDP501"]


@pytest.mark.parametrize(("failure", "kept"), [("DDP411", []), ("DDP405", []), ("DDP312", ["DDP405"])])
def test_what_a_failure_supersedes_is_left_out(found, failure, kept):
    assert found(gives(finding("DDP405")), failures=[finding(failure)]) == kept


def test_unused_parameters_supersede_gradients_that_differ(found):
    assert found(gives(finding("DDP409")), failures=[finding("DDP401")]) == []


@pytest.mark.parametrize(("place", "kept"), [(1, []), (2, ["DDP316"])])
def test_a_work_without_a_wait_is_the_same_mistake_at_a_line_that_is_named(found, place, kept):
    assert found(gives(finding("DDP316", place=place)), failures=[finding("DDP312")]) == kept
