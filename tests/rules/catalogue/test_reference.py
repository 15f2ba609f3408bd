from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ddpnb.rules.catalogue import UNTESTED, pages
from ddpnb.rules.catalogue.reference import reference

COMMITTED = Path(__file__).parents[3] / "docs" / "findings.md"


def test_the_committed_reference_is_current():
    told = "run: python -m ddpnb.rules.catalogue > docs/findings.md"
    assert COMMITTED.read_text(encoding="utf-8") == reference(), told


def test_the_command_writes_it():
    done = subprocess.run(
        [sys.executable, "-m", "ddpnb.rules.catalogue"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        encoding="utf-8",
    )
    assert done.stdout == reference()


def test_every_page_is_in_it_once():
    headings = re.findall(r"^### (.+)$", reference(), re.MULTILINE)
    assert headings == [f"{one.code} {one.name}" for one in pages().values()]


def test_it_says_once_what_is_untested():
    assert reference().count(UNTESTED) == 1


def test_its_links_lead_somewhere():
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^#+ (.+)$", reference(), re.MULTILINE)
    }
    links = set(re.findall(r"\]\(#([^)]+)\)", reference()))
    assert len(links) == len(pages())
    assert links <= anchors


def test_the_table_has_three_columns():
    rows = [line for line in reference().splitlines() if line.startswith("| [DDP")]
    assert len(rows) == len(pages())
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)
