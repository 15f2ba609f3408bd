"""A diagnosis as Markdown: what is known, and nothing of secrets, homes or markup of ranks."""

from __future__ import annotations

from pathlib import Path

from ddpnb.recording.calls import Site
from ddpnb.recording.findings import Diagnosis, Finding, FindingType


def finding(summary="Rank 1 never calls all_reduce.", **given):
    where = ((1, Site(f"{Path.cwd()}/train.py", 41, "main")),)
    return Finding(FindingType("DDP301", "collective-missing"), summary, where=where, **given)


def report(*findings, number=None, notes=()):
    return Diagnosis("hang", findings=findings, world_size=4, notes=notes).to_markdown(number)


def test_what_a_report_says():
    text = report(finding(evidence=("it returned",), remedy="call it"), notes=("no stacks",))
    assert text.startswith("**ddpnb: hang** on 4 ranks\n\n### DDP301 collective-missing (error)")
    assert "- it returned" in text and "Fix: call it" in text and "- no stacks" in text
    assert "`train.py:41" in text


def test_one_finding_of_several():
    text = report(finding("first."), finding("second."), number=1)
    assert "second." in text and "first." not in text


def test_secrets_and_homes_are_masked(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("HOME", "/home/anneliese")
    monkeypatch.setenv("USER", "anneliese")
    text = report(finding("it read /home/anneliese/data with hf_abcdefghijklmnop, password=geheim123"))
    for secret in ("anneliese", "hf_abcdefghijklmnop", "geheim123"):
        assert secret not in text
    assert "~/data" in text


def test_ranks_write_no_markup():
    text = report(finding("<img src=x>\n# heading ```\n@everyone"))
    assert "<img" not in text and "\n# heading" not in text and "```" not in text and "@everyone" not in text
