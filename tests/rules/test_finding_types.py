"""Every type of finding has its page, and one home."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

import ddpnb.rules
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.rules import catalogue
from ddpnb.rules.finding_types import declared, type_of

# Only messages of torch, of the backends or of the host lead to them.
OF_MESSAGES = {"DDP201", "DDP203", "DDP204", "DDP205", "DDP206", "DDP207", "DDP208", "DDP604", "DDP705"}


def test_every_type_has_a_page_with_its_name():
    for code, kind in declared().items():
        page = catalogue.page(code)
        assert (kind.code, kind.name) == (page.code, page.name)
        assert (files("ddpnb.rules.catalogue") / "pages" / kind.page).is_file()


def test_every_page_has_a_type_or_belongs_to_messages():
    assert set(catalogue.codes()) - declared().keys() == OF_MESSAGES


def test_every_type_is_declared_once():
    sources = [path.read_text() for path in Path(ddpnb.rules.__path__[0]).rglob("*.py")]
    codes = re.findall(
        r'^(?:\w+ = FindingType|@rule|@hang\(FindingType)\(\s*"(DDP\d{3})"', "\n".join(sources), re.MULTILINE
    )
    assert sorted(codes) == sorted(declared())


def test_what_a_type_supersedes_exists():
    assert {code for kind in declared().values() for code in kind.supersedes} <= set(catalogue.codes())


def test_a_type_of_messages_gets_the_name_of_its_page():
    assert type_of("DDP201") == FindingType("DDP201", "shared-device")
    assert type_of("DDP201").name == "shared-device"
    with pytest.raises(KeyError):
        type_of("DDP999")


def test_a_finding_takes_the_severity_of_its_type():
    kind = FindingType("DDP502", "epoch-not-set", severity="warning")
    assert (Finding(kind, "").severity, Finding(kind, "", severity="error").severity) == ("warning", "error")
    assert (Finding(kind, "").code, Finding(kind, "").name) == ("DDP502", "epoch-not-set")
