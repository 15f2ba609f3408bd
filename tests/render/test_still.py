"""A run as one HTML file, and the last state of a dashboard: static, escaped, bounded, and alone."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.calls import Call, CallState, Signature
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render import still
from ddpnb.render.still import page
from ddpnb.render.views import board
from tests.render.reading import Reading
from tests.rules.recordings import Rank, Script, diagnose, line, record, world_group

NASTY = '</style></pre><script>alert(1)</script><img src=x onerror="x()">'
SCRIPT = Script("""
def main(rank):
    all_reduce(x)  # reduce
    if rank == 0:
        barrier()  # barrier
""")


def hang():
    made = record(
        Rank(0, 2).calls("all_reduce", SCRIPT.at("reduce")).waits("barrier", SCRIPT.at("barrier")),
        Rank(1, 2).calls("all_reduce", SCRIPT.at("reduce")).raises("ValueError", NASTY, line(9)),
        script=SCRIPT,
    )
    ranks = {rank: replace(one, output=f"rank {rank} wrote {NASTY}") for rank, one in made.ranks.items()}
    return replace(made, ranks=ranks, taken_ns=made.last_progress_ns + 10**9)


def alone(html):
    """It has no scripts or handlers, loads nothing and links to nothing; gives what one reads."""
    assert not re.search(r"<(script|link|iframe|a)\b", html, re.IGNORECASE)
    assert "url(" not in html and "@import" not in html
    body = html.partition("<main>")[2].partition("</main>")[0] or html
    shown = Reading(
        re.sub(r"<style.*?</style>|</?h[12]>", "", body, flags=re.DOTALL)
    )  # refuses handlers and what is not closed
    assert all(values["src"].startswith("data:image/png;base64,") for tag, values in shown.tags if tag == "img")
    return str(shown.text)


def test_a_page_says_all_that_is_known():
    made = hang()
    html = page(made, diagnose(made))
    text = alone(html)
    assert html.startswith("<!DOCTYPE html>")
    for words in ("crash: a rank failed", "DDP3", "Time line", "Output of the ranks", "rank 1 wrote </style>"):
        assert words in text, words
    assert "default-src 'none'" in html
    assert "prefers-color-scheme: dark" in html
    assert len(html) < 300_000


def test_files_are_written_whole(tmp_path):
    path = tmp_path / "run.html"
    hang().to_html(path)
    assert path.read_text().rstrip().endswith("</html>")
    with pytest.raises(UsageError):
        hang().to_html(7)


def test_a_recording_of_nothing_is_a_page_too():
    html = page(Recording(2, {}), diagnose(Recording(2, {})))
    alone(html)
    assert "Time line" not in html


def state(made, **more):
    found = diagnose(made)
    return still.state("a world", diagnosis=found, tiles=board.tiles(made, found.findings), recording=made, **more)


def test_the_last_state_reads_well_without_styles():
    html = still.wrapped(state(hang()), "abc")
    alone(html)
    bare = re.sub(r"<style.*?</style>|<svg.*?</svg>| (class|style)=\"[^\"]*\"", "", html, flags=re.DOTALL)
    text = str(Reading(bare).text)
    assert "a world" in text and "DDP3" in text
    assert re.search(r"0.*waiting.*barrier", text, re.DOTALL) and "failed" in text
    assert 'alt="The time line' in bare


def test_the_last_state_is_hidden_while_its_own_widget_lives_and_no_other():
    one, other = (still.wrapped("", number) for number in ("abc", "def"))
    assert "body:has(.ddpnb-panel-abc) :is(.ddpnb-saved-abc," in one
    assert "abc" not in other


def test_the_last_state_is_bounded_with_many_ranks():
    group = world_group(300)
    calls = tuple(
        Call(n, group, n + 1, Signature("all_reduce", agreed="x"), line(5), CallState.COMPLETED, entered_ns=(n + 1) * 10**6, done_ns=(n + 1) * 10**6 + 5)
        for n in range(200)
    )  # fmt: skip
    many = Recording(300, {rank: RankRecord(rank, calls=calls) for rank in range(300)}, taken_ns=10**9)
    assert len(state(many)) < 400_000


def test_without_ranks_the_text_is_shown():
    assert "&lt;b&gt;" in still.state("t", text="<b>")
