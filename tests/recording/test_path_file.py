"""The file with a path: written here by hand, as a rank does, and damaged in every way."""

from __future__ import annotations

import random
from array import array

import pytest

from ddpnb.recorder.paths.path_file import PathFile
from ddpnb.recording import path_file as layout
from ddpnb.recording.path import Block, Branch, Code, Kind, number, word
from ddpnb.recording.path_file import PathReader, beginning, sound

CODE = Code("/a/train.py", "train", 3)
BASE = [word(Kind.BASE, 1), word(Kind.FRAME, 0, 8)]
DECISION = word(Kind.BRANCH, 4, 9)


def in_ring(words):
    return array("Q", array("I", [half for one in words for half in layout.packed(one)]).tobytes())


@pytest.fixture
def file(tmp_path):
    file = PathFile(str(tmp_path / "rank0.path"))
    file.new_run(1)
    file.say("thread", "MainThread")
    say_code(file, 0)
    return file


def say_code(file, of, function="train"):
    blocks, branches = [[0, 8, -1, 8, -1]], [[4, 33, 33, 8, 20, True, ["step", "self.best"]]]
    assert file.say("code", of, "/a/train.py", function, 3, "0a", True, blocks, branches, [[0, 3], [4, 33]])


def data(file):
    return bytes(file._memory)


def read(file, run=1):
    return PathReader(data(file)).read(run)


def test_what_is_written_is_read(file):
    assert file.say("text", "all_reduce")
    say_code(file, 1, "helper")
    words = [*BASE, DECISION, word(Kind.ENTER, 1, 9), word(Kind.RETURN, 6), word(Kind.CALL, 9, 1, 0), number(7, 3)]
    file.write(0, in_ring(words[:4]))
    file.write(0, in_ring(words[4:]))
    path = read(file)
    assert path.threads == {"MainThread": tuple(words)} and path.texts == ("", "all_reduce")
    assert (path.forgotten, path.missing) == (0, "")
    assert path.codes[0] == Code(
        "/a/train.py", "train", 3, "0a", True, (Block(0, 8, -1, 8, -1),),
        (Branch(4, 33, 33, 8, 20, True, ("step", "self.best")),), ((0, 3), (4, 33)),
    )  # fmt: skip
    assert path.codes[1].function == "helper" and read(file, run=2) is None
    file.new_run(2)
    assert read(file, run=1) is None and read(file, run=2).threads == {}


def test_threads_are_apart_and_a_later_description_counts(file):
    file.say("thread", "worker\n")
    file.say("thread", "MainThread")
    for thread in (0, 1, 0, 2, 1):
        file.write(thread, in_ring([*BASE, DECISION]))
    say_code(file, 0, "described")
    file.say("missing", "all else")
    path = read(file)
    assert {name: len(words) for name, words in path.threads.items()} == {
        "MainThread": 6, "worker�": 6, "MainThread (2)": 3,
    }  # fmt: skip
    assert path.codes[0].function == "described" and path.missing == "all else"


def test_a_ring_that_was_filled_several_times(file, monkeypatch):
    monkeypatch.setattr(layout, "WORDS", 1000)
    monkeypatch.setattr(layout, "_MARGIN", 50)
    file._ring = file._ring[:1000]
    written = 0
    for turn in range(300):
        words = in_ring([*BASE, *[word(Kind.BRANCH, turn, n) for n in range(turn % 40)]])
        file.write(0, words)
        written += len(words) + 1
    path = read(file)
    words = path.threads["MainThread"]
    assert words[-19:] == tuple(word(Kind.BRANCH, 299, n) for n in range(299 % 40))
    assert 900 < len(words) < 1000 and words[0] == BASE[0] and path.forgotten > written - 1000


def test_what_is_longer_than_a_piece(file):
    words = [*BASE, *[DECISION] * (3 * layout.PIECE)]
    file.write(0, in_ring(words))
    assert read(file).threads["MainThread"] == tuple(words)


def test_words_that_are_being_written_are_not_read(file):
    file.write(0, in_ring(BASE))
    file._head[layout.BEGUN] += layout.WORDS - 2  # over all that was written before
    assert read(file).threads == {}


def test_a_table_that_is_full_says_so(file):
    said = 0
    while file.say("text", "x" * 200):
        said += 1
    assert said > 4000 and not file.say("code", 1, "x" * 4000, "f", 1, "", True, [], [], [])
    assert len(read(file).texts) == said + 1


def test_stacks_that_do_not_fit_together_are_a_gap(file):
    """As with greenlets, which change the stack of a thread without a word."""
    begin, end = word(Kind.ENTER, 0, 1), word(Kind.RETURN, 4)
    good, bad = [*BASE, DECISION, begin, end], [begin, DECISION]
    gap = word(Kind.GAP)
    assert sound([*good, *bad, *good], [CODE], [""]) == [*BASE, gap, *good]
    assert sound([*good, end, end, DECISION, *good], [CODE], [""]) == [*BASE, gap, *good]
    assert sound([*good, *good, begin], [CODE], [""]) == [*good, *good, begin]
    assert sound([DECISION, end, *good], [CODE], [""]) == good
    assert sound([*good, gap, DECISION, end, *good], [CODE], [""]) == [*good, gap, *good]
    hot, cold = word(Kind.HOT, 0, (1 << 20) - 1), word(Kind.COLD)
    none = word(Kind.BASE, 0)
    assert sound([*good, hot, none, DECISION, cold, *good], [CODE], [""]) == [*good, hot, none, DECISION, cold, *good]


@pytest.mark.parametrize(
    "words",
    [
        [word(Kind.ENTER, 9)],
        [word(Kind.HANDLED, 4, 9)],
        [word(Kind.CALL, 4, 0, 9), number(1)],
        [word(Kind.CALL, 4, 0, 0)],
        [word(Kind.CALL, 4, 0, 0), DECISION],
    ],
    ids=["code", "text", "group", "end", "number"],
)
def test_what_refers_to_nothing_is_a_gap(words):
    assert sound([*BASE, *words], [CODE], [""]) == [*BASE, word(Kind.GAP)]
    assert sound([*BASE, *words, DECISION, *BASE], [CODE], [""]) == [*BASE, word(Kind.GAP), *BASE]


def test_frames_that_are_none():
    assert sound([word(Kind.BASE, 3), *BASE[1:]], [CODE], [""]) == []
    assert sound([word(Kind.BASE, 1), word(Kind.FRAME, 7)], [CODE], [""]) == []
    assert beginning((DECISION, *BASE)) == tuple(BASE) and beginning((DECISION,)) == ()


def test_other_files_are_none(tmp_path):
    for source in (b"", b"ddpnbPT2", bytes(layout.FILE_SIZE)):
        with pytest.raises(ValueError, match="not a path"):
            PathReader(source)


def test_a_damaged_file_gives_a_path_or_none(file):
    file.say("text", "all_reduce")
    for _ in range(20):
        file.write(0, in_ring([*BASE, DECISION, word(Kind.CALL, 9, 1, 0), number(7)]))
    whole = data(file)
    source = random.Random(1)
    used = [*range(8, 40), *range(layout.TABLE_AT, layout.TABLE_AT + 300), *range(layout.RING_AT, layout.RING_AT + 800)]
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(6):
            damaged[source.choice(used)] = source.randrange(256)
        path = PathReader(damaged).read(1)
        for words in path.threads.values() if path is not None else ():
            assert list(words) == sound(words, path.codes, path.texts)


@pytest.mark.parametrize(
    "line",
    [
        [], 1, {}, ["code"], ["code", 0, "f", "g", 1, "", True, [[1]], [], []], ["text"], ["text", {}],
        ["code", 5, "f", "g", 1, "", True, [], [], []], ["code", 0, "f", "g", 1, "", True, [], [[1, 2]], []],
        ["code", 0, "f", "g", 1 << 40, "", True, [], [], []], ["code", "0", "f", "g", 1, "", True, [], [], []],
        ["code", 0, "f", "g", 1, "", True, [], [], [[1, "2"]]], "[" * 3000,
    ],
)  # fmt: skip
def test_a_line_of_the_table_may_be_anything(file, line):
    if isinstance(line, list):
        file.say(*line)
    else:
        file.say(line)
    file.say("text", "behind")
    path = read(file)
    assert path.codes[0].function == "train" and len(path.codes) == 1 and path.texts[-1] == "behind"
