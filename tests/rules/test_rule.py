"""How a rule is declared, and what becomes of its Draft."""

from __future__ import annotations

import pytest

from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.rules import engine
from ddpnb.rules.rule import FAILURE, Draft, Rule, after_verb, alike, differ, refined, say, title
from tests.rules.recordings import Rank, line, record

RECORDING = record(Rank(0, 2).joined(line(1)), Rank(1, 2).joined(line(1)))


def kind(code, **declared):
    return FindingType(code, code.lower(), **declared)


def gives(*codes, severity="error", **declared):
    """A rule that finds all of these codes."""
    kinds = tuple(kind(code, severity=severity) for code in codes)
    return Rule(kinds, lambda _: [Draft(one.code, (0,), kind=one) for one in kinds], **declared)


def found(*rules, failures=()):
    taken = Snapshot(RECORDING, failures=failures)
    return [finding.code for finding in engine.ask(taken, engine.in_order(rules))]


def test_rules_are_asked_by_code_but_causes_first():
    assert found(gives("DDP402"), gives("DDP401")) == ["DDP401", "DDP402"]
    assert found(gives("DDP402", severity="note"), gives("DDP401", severity="note", after=("DDP402",))) == [
        "DDP402",
        "DDP401",
    ]


def test_an_effect_is_not_asked_for_where_its_cause_was_found_as_an_error():
    effect = gives("DDP401", after=("DDP402",))
    assert found(gives("DDP402"), effect) == ["DDP402"]
    assert found(gives("DDP402", severity="warning"), effect) == ["DDP401", "DDP402"]


def test_some_rules_are_only_for_runs_without_failures():
    failure = Finding(kind("DDP312"), "")
    assert found(gives("DDP401", after=(FAILURE,))) == ["DDP401"]
    assert found(gives("DDP401", after=(FAILURE,)), failures=(failure,)) == []


@pytest.mark.parametrize(("supersedes", "kept"), [(("DDP405",), []), ((), ["DDP405"])])
def test_what_follows_from_a_failure_is_left_out(supersedes, kept):
    assert found(gives("DDP405"), failures=(Finding(kind("DDP411", supersedes=supersedes), ""),)) == kept


@pytest.mark.parametrize(("place", "kept"), [(1, []), (2, ["DDP316"])])
def test_some_findings_add_nothing_where_a_failure_names_the_line(place, kept):
    own = kind("DDP316", once_per_line=True)
    rule = Rule((own,), lambda _: [Draft("", (0,), at={0: line(place)})])
    assert found(rule, failures=(Finding(kind("DDP312"), "", (0,), where=((0, line(1)),)),)) == kept


def test_a_rule_is_not_asked_without_the_facts_that_it_needs():
    assert found(gives("DDP401", needs=("events", "path"))) == []


def test_a_more_specific_finding_comes_in_the_place_of_another_once():
    def better(code, of):
        own = kind(code)
        return Rule((own,), lambda snap: [refined(one, own, summary=code) for one in snap.found(of)], refines=(of,))

    rules = gives("DDP401"), gives("DDP403"), better("DDP402", "DDP401"), better("DDP404", "DDP402")
    assert found(*rules) == ["DDP402", "DDP403"]


def test_places_come_in_the_order_of_the_ranks_and_a_tie_is_named():
    draft = Draft("", (2,), at={0: line(5), 1: NO_SITE, 2: line(7), 3: line(8)}, waiting=(3,), sides=((2,), (0, 1)))
    made = draft.finding([kind("DDP401")])
    assert (made.where, made.sides) == (((2, line(7)), (3, line(8)), (0, line(5))), ())
    tied = Draft("", sides=((0,), (1,)), evidence=("So.",)).finding([kind("DDP401")])
    assert (tied.evidence[0], "rank 0 or rank 1" in tied.evidence[1], tied.sides) == ("So.", True, ((0,), (1,)))


def test_verbs_follow_the_number_of_ranks():
    text = "{who} [waits|wait] for {others}, not {what}."
    assert say(text, (0, 2), others=(1,), what="x") == "Ranks 0 and 2 wait for rank 1, not x."
    assert say(text, (1,), others=(0, 2), what="y") == "Rank 1 waits for ranks 0 and 2, not y."
    assert say("Here {who} [is|are].", (1,)) == "Here rank 1 is."


def test_ranks_with_the_same_words_share_a_line():
    words = {0: {"at": "train.py:7"}, 1: {"at": "{train}.py:9"}, 2: {"at": "train.py:7"}}
    assert alike("{who} [is|are] at {at}.", words) == ("Ranks 0 and 2 are at train.py:7.", "Rank 1 is at {train}.py:9.")


def test_what_ranks_did_alike_is_said_once():
    killed = "was killed. Its last call was barrier #1."
    assert after_verb({0: killed, 1: "raised KeyError: '{x}'.", 2: killed}) == (
        "Ranks 0 and 2 were killed. Their last call was barrier #1.",
        "Rank 1 raised KeyError: '{x}'.",
    )


def test_a_title_is_the_first_version_that_is_short():
    long, short = " ".join(["word"] * 21), " ".join(["word"] * 20)
    assert title(long, short, "word") == short
    assert title(long, f"{long} more") == f"{long} more"


@pytest.mark.parametrize(
    ("values", "summary", "culprits", "sides"),
    [
        ({0: "a", 1: "b", 2: "a"}, "Rank 1 has b, ranks 0 and 2 a.", (1,), ()),
        ({0: "a", 1: "b"}, "Apart: a on rank 0, b on rank 1.", (), ((0,), (1,))),
        (
            {0: "a", 1: "b", 2: "a", 3: "c", 4: "a"},
            "Apart: a on ranks 0, 2 and 4, b on rank 1, c on rank 3.",
            (1, 3),
            (),
        ),
    ],
)
def test_values_that_differ(values, summary, culprits, sides):
    words = {"one": "{who} [has|have] {mine}, {others} {theirs}.", "tie": "Apart: {sides}.", "line": "has {}"}
    (draft,) = differ(PerRank(values), {}, **words, remedy="Fix it.")
    made = draft.finding([kind("DDP401")])
    assert (made.summary, made.culprits, made.sides) == (summary, culprits, sides)
    assert made.evidence[1] == f"Rank 1: has {values[1]}."


def test_values_that_are_alike():
    assert not list(differ(PerRank({0: 1, 1: 1}), {}, one="", tie="", line="", remedy=""))


def test_a_code_is_made_in_one_module():
    homes: dict[str, set[str]] = {}
    for rule in engine.rules():
        for code in {*rule.codes} - {*rule.refines, *rule.after}:  # others may give it better words, or give way to it
            homes.setdefault(code, set()).add(rule.find.__module__)
    assert {code: modules for code, modules in homes.items() if len(modules) > 1} == {}
