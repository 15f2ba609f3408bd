"""Partings to be shown: a usual one, and one whose every text comes from a hostile rank."""

from __future__ import annotations

from ddpnb.recording.calls import Site
from ddpnb.recording.parting import Harmless, Parting, Way

FILE = "/home/user/train.py"
SOURCE = """\
def train(model, loader):
    rows = read(loader)
    if rank == 0:
        log(rows)
    for step in range(20):
        batch = next(it)

        if not batch:
            continue
        loss = model(batch).sum()
        loss.backward()
    save(model)


def main():
    train(model, loader)
"""


def at(line: int, function: str = "train", file: str = FILE) -> Site:
    return Site(file, line, function)


SKIPS = Parting(
    "branch",
    at(8),
    (
        Way(
            (0, 1, 3),
            at(10),
            calls=("all_reduce #15 of default_pg at /home/user/train.py:11",),
            before={0: (14, 14), 1: (14, 14), 3: (14, 14)},
        ),
        Way((2,), at(9), before={2: (0, 14)}),
    ),
    "not batch",
    (at(16, "main"),),
    (2,),
    {0: {"batch": "[3, 4]", "step": "14"}, 1: {"batch": "[1]", "step": "14"}, 2: {"batch": "[]", "step": "14"}},
    (Harmless(at(3), "rank == 0", (((0,), at(4)), ((1, 2, 3), at(5)))),),
).quoted({FILE: SOURCE})


def saying(text: str) -> Parting:
    """Every text that a rank has a say in is ``text``."""
    site = Site(text, 7, text)
    ways = (Way((0,), site, text, (text,) * 8), Way((1,), Site(text, 5, text), text, (text,) * 8))
    values = {0: {text: text}, 1: {text: f"{text}1", "other": text}}
    harmless = (Harmless(site, text, (((0,), site), ((1,), site))),) * 9
    parting = Parting("branch", site, ways, text, (site,) * 9, (0,), values, harmless)
    return parting.quoted({text: "\n".join([text.replace("\n", " ")] * 20)})
