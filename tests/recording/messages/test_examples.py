"""Every entry of errors.toml explains real texts: examples.toml says which, and what is to be found."""

from __future__ import annotations

import re
import warnings

import pytest

from ddpnb.recording.messages import computed
from ddpnb.recording.messages.entries import Entry, entries, explanation, words
from ddpnb.recording.messages.errors import compiled, data, is_consequence_text
from ddpnb.recording.messages.explain import explain, explain_text
from ddpnb.recording.messages.explained import Raised
from ddpnb.recording.messages.sentences import sentence
from ddpnb.rules.catalogue import codes
from tests.recording.messages.told import EXAMPLES, FILE, as_log, circumstances, inside, user

KNOWN = [(code, example) for code, examples in EXAMPLES.items() if code != "none" for example in examples]
TEXTS = [text for _, example in KNOWN for text in (example["text"], example.get("traceback", "-"))]
CASES = [case for entry in entries() for case in entry.all]


def name(example: object) -> str:
    return re.sub(r"\W+", " ", str(example["text"]))[:50] if isinstance(example, dict) else str(example)


@pytest.mark.parametrize(("code", "example"), KNOWN, ids=name)
def test_an_example_is_explained(code, example):
    found = explain(example["text"], example.get("raised", "RuntimeError"), **circumstances(example))
    assert found is not None and found.code == code
    ranks = tuple(example["culprits"]) if "culprits" in example else None
    named = (ranks, tuple(example.get("missing", ())), tuple(example.get("tensors", ())))
    assert (found.culprits, found.missing, found.tensors) == named
    assert found.sides == tuple(map(tuple, example.get("sides", ())))
    assert f"{found.hint.line}: {found.hint.reason}" == example["hint"] if "hint" in example else found.hint is None
    texts = " ".join((found.summary, *found.evidence, found.remedy))
    assert example.get("says", "") in texts and found.summary.endswith(".") and "{?" not in texts
    if not {"source", "names", "traceback"} & example.keys():
        assert code in [logged.code for logged in explain_text(as_log(example))]


@pytest.mark.parametrize("example", EXAMPLES["none"], ids=name)
def test_what_is_the_users_own_is_not_explained(example):
    exception, own = example.get("raised", "RuntimeError"), circumstances(example)
    assert explain(example["text"], exception, **own) is None
    if not {"line", "through", "traceback"} & example.keys():
        source = {FILE: "loss = step(model, batch)\n"}
        elsewhere = [user(), inside("numpy/core/x.py", "f")], [inside("torch/nn/modules/x.py", "_call"), user()]
        for frames in ([], *elsewhere):
            assert explain(example["text"], exception, **{**own, "frames": frames, "sources": source}) is None
        assert not exception or explain_text(as_log(example)) == []


@pytest.mark.parametrize("example", [one for one in EXAMPLES["none"] if "consequence" in one], ids=name)
def test_the_words_of_a_rank_that_lost_a_peer_are_a_consequence(example):
    certain = is_consequence_text(example["text"], certain=True)
    assert (is_consequence_text(example["text"]), certain) == (True, example["consequence"] == "certain")


def test_words_of_a_program_are_no_consequence():
    assert not is_consequence_text("mat1 and mat2 shapes cannot be multiplied (3x3 and 2x2)")


def test_every_entry_and_pattern_has_an_example(monkeypatch):
    used: set[Entry] = set()

    def explained(raised):
        found = explanation(raised)
        used.update(found[:1] if found is not None else ())
        return found

    monkeypatch.setattr("ddpnb.recording.messages.explain.explanation", explained)
    for _, example in KNOWN:
        explain(example["text"], example.get("raised", "RuntimeError"), **circumstances(example))
    assert not [(case.code, case.summary, case.pattern) for case in CASES if not case.case and case not in used]
    patterns = [pattern for case in CASES for pattern in (*case.pattern, *case.detail)]
    assert not [pattern for pattern in patterns if not any(compiled(pattern).search(text) for text in TEXTS)]
    assert "NVRM: Xid" in words()


def test_every_entry_is_whole():
    for case in CASES:
        assert case.case or (case.code in codes() and case.summary and case.remedy and case.source), case
        assert not case.compute or callable(getattr(computed, case.compute))
        for template in (case.summary, case.remedy, *case.evidence):
            assert "{?" not in sentence(template.replace(":each}", "}"), {})
    with pytest.raises(TypeError):
        Entry.of({"code": "DDP101", "pattren": "x"})


def test_every_quantifier_has_a_bound():
    patterns = [*data()["consequences"].values()]
    for case in CASES:
        patterns += [*case.pattern, *case.through, *case.detail, *case.each.values()]
        patterns += [case.line, case.unless, case.cause_of]
    for pattern in filter(None, patterns):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            whole = re.compile(compiled(pattern).pattern).pattern
        bare = re.sub(r"\\.|\[(?:\\.|\^?\]?[^\]\\])*\]", "x", whole)
        assert not re.search(r"[*+]|\{\d*,\}", bare), pattern


@pytest.mark.parametrize("start", sorted({text[:40] or "-" for text in TEXTS}), ids=lambda text: text[:20])
def test_a_text_that_goes_on_for_ever_is_read_in_bounds(start):
    # A pattern that looks back takes minutes for these.
    for filler in ("1 ", "'", "a.b\n"):
        for text in (start + filler * (4_000 // len(filler)), start * (4_000 // len(start)) + filler):
            explain(text, "RuntimeError", names=["a"] * 9)
            is_consequence_text(text)


def test_values_of_strangers_are_no_templates():
    found = explanation(Raised.of("Unable to find address for: {name:xid}{?a|b}{{}}"))
    assert "{name:xid}{?a|b}{{}}" in found[1].summary
