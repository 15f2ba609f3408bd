"""Tab in a cell of the ranks."""

from __future__ import annotations

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from ddpnb.errors import UsageError
from ddpnb.notebook.magics import completion
from ddpnb.notebook.magics.completion import RankNames
from ddpnb.recording.verbs import Names


class Ranks:
    """Ranks that know these names; one without names does not answer."""

    def __init__(self, *names):
        self.names, self.asked, self.processes = names, [], self

    def pid(self, rank):
        return 100 + rank

    def alive(self):
        return list(range(len(self.names)))

    def ask(self, ranks, request, timeout):
        assert timeout <= 0.5
        self.asked.append((tuple(ranks), request.owner, request.prefix))
        return {rank: Names(names=self.names[rank]) for rank in ranks if self.names[rank] is not None}


class World:
    def __init__(self, *names):
        self._ranks = Ranks(*names)


def completed(world, text):
    cell, line = text, text.split("\n")[-1]
    return RankNames(lambda: world).complete(cell, line)


def test_the_names_of_all_ranks():
    world = World(["model", "mode"], ["model", "modulus"])
    assert completed(world, "%%ddp\nx = mod") == ("mod", ["mode", "model", "modulus"])
    assert completed(world, "%%ddp_rank 0\nprint(model.we")[0] == "we"
    assert world._ranks.asked[-1] == ((0, 1), "model", "we")


@pytest.mark.parametrize("text", ["x = mod", "%%time\nmod", "%%ddp --ra", "%%ddp\n", "%%ddp\nx = (", "%%ddp\nf().mod",
                                  "%%ddp\na.b.mod", "%%ddp\n3.mod", "%%ddpx\nmod"])  # fmt: skip
def test_ranks_are_not_asked_for_anything_else(text):
    world = World(["model"])
    assert completed(world, text) == ("", [])
    assert not world._ranks.asked


def test_without_ranks_there_are_none():
    def none():
        raise UsageError("no World is running.", "Launch one.")

    assert RankNames(none).complete("%%ddp\nmod", "mod") == ("", [])


def test_a_rank_that_does_not_answer_is_not_asked_again_for_a_while(monkeypatch):
    world, now = World(["model"], None), [100.0]
    monkeypatch.setattr(completion.time, "monotonic", lambda: now[0])
    names = RankNames(lambda: world)
    for _ in range(3):
        assert names.complete("%%ddp\nmod", "mod") == ("mod", ["model"])
    assert [ranks for ranks, *_ in world._ranks.asked] == [(0, 1), (0,), (0,)]
    now[0] += 60
    names.complete("%%ddp\nmod", "mod")
    assert world._ranks.asked[-1][0] == (0, 1)


def test_what_a_rank_says_is_not_trusted():
    assert completed(World(["model", "x; import os", "モデル"]), "%%ddp\nm")[1] == [
        "model",
        "モデル",
    ]


def test_ipython_offers_them_beside_its_own():
    shell = InteractiveShell()
    completion.register(shell, RankNames(lambda: World(["only_on_ranks", "weight"])))
    for text, wanted in (("%%ddp\nonly_o", "only_on_ranks"), ("%%ddp\nmodel.we", "weight")):
        with provisionalcompleter():
            offered = [one for one in shell.Completer.completions(text, len(text)) if one.text.endswith(wanted)]
        assert offered and text[: offered[0].start] + offered[0].text == text[: text.rfind(wanted[:2])] + wanted
