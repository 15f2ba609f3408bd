"""Pages and files of torch's debug server (``torch.distributed.debug``, torch 2.9 and later).

They list what each rank answers, under ``Rank 3: http://host:port/...`` (a page) or ``=== Rank 3: ... ===`` (a file of its
periodic dumps): stacks, which the formats of py-spy and faulthandler read, the flight recorder's JSON, and counters.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from functools import partial

from ddpnb.errors import UsageError
from ddpnb.reports import faulthandler_dumps, flight_recorder, logs, pyspy
from ddpnb.reports.facts import Fact, Unknown, WorldSize
from ddpnb.reports.files import HEAD, ReportFile
from ddpnb.reports.logs import Log

NAME = "page of torch's debug server"
MARKS = ("=== Rank ", "<h2>Rank ", "PARTIAL DATA:")

_SECTION = re.compile(r"^(?:=== |\s{0,12}<h[23]>)Rank (\d{1,6}): [^\n]{1,1000}?(?: ===|</h[23]>)", re.MULTILINE)
_PARTIAL = re.compile(
    r"PARTIAL DATA: (\d{1,6})/(\d{1,6}) workers responded((?:\n {1,4}Rank \d{1,6}: [^\n]{0,500}){0,10000})"
)
_ABSENT = re.compile(r"Rank (\d{1,6}): ")
_TAG = re.compile(r"</?(?:pre|h1|h2|h3|p|section|nav|div)\b[^<>]{0,200}>")


def read(log: Log) -> Iterator[Fact]:
    """The number of ranks, those that did not answer, and, of a page, the stacks: of a text the other formats read them."""
    partial = _PARTIAL.search(log.text)
    if partial:
        yield WorldSize(int(partial[2]))
        absent = sorted({int(number) for number in _ABSENT.findall(partial[3])})
        yield Unknown(
            f"The debug server got no answer of rank{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))} (torch.distributed.debug): "
            "the process has ended, or its debug thread is blocked. Collect py-spy dump --pid of it next."
        )
    ranks = {int(match[1]) for match in _SECTION.finditer(log.text)}
    if ranks and not partial and ranks == set(range(len(ranks))):
        yield WorldSize(len(ranks))  # the server asks all ranks
    yield from _recorded(log)
    if "<h2>Rank " in log.text:
        page = logs.read(log.path, html.unescape(_TAG.sub("\n", log.text)))
        yield from pyspy.read(page)
        yield from faulthandler_dumps.read(page)


def _recorded(log: Log) -> Iterator[Fact]:
    """The calls in the flight recorder's JSON, which a page lists for each rank."""
    dumps = [
        ReportFile(f"{log.path}: rank{rank}.json", partial(io.BytesIO, data), len(data), plain=False)
        for rank, data in ((rank, text.encode()) for rank, text in sections(log))
        if flight_recorder.recognises(data[:HEAD])
    ]
    try:
        for found in flight_recorder.read(dumps) if dumps else ():
            yield from found.facts
    except UsageError as error:
        yield Unknown(f"The flight recorder's JSON of {log.path} could not be read: {error}")


def sections(log: Log) -> Iterator[tuple[int, str]]:
    """(rank, what it answered) of a page or file, as it stands there: for the reader of the flight recorder's JSON."""
    heads = list(_SECTION.finditer(log.text))
    for head, after in zip(heads, [*heads[1:], None], strict=False):
        body = log.text[head.end() : after.start() if after else len(log.text)]
        yield int(head[1]), html.unescape(_TAG.sub("\n", body)).strip() if "<pre>" in body else body.strip()
