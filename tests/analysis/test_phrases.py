"""Words that several findings share."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.analysis.phrases import turned_away
from tests.analysis.recordings import Rank, Script, record

CALLER = Script(
    """
    def main(rank):
        if rank != 1:  # decides
            reduce()  # calls
    """
)
CALLED = Script("def reduce():\n    dist.all_reduce(x)  # waits", "/home/me/reduce.py")


def test_a_line_of_another_file_says_which():
    recording = record(Rank(0), Rank(1), script=CALLER)
    recording = replace(recording, sources={**recording.sources, CALLED.file: CALLED.text})
    site, reasons = turned_away(recording, (CALLER.at("calls"), CALLED.at("waits", "reduce")))
    assert (site.file, site.line) == (CALLER.file, CALLER.line("decides"))
    assert reasons == [f"Line {site.line} of {CALLER.file} decides: if rank != 1."]
    assert turned_away(recording, (CALLER.at("calls"),))[1] == [f"Line {site.line} decides: if rank != 1."]
