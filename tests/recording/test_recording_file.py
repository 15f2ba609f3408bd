"""A recording in a file is the recording; whatever else is in a file is refused with a message."""

from __future__ import annotations

import base64
import gzip
import json
import random
import zlib
from array import array
from dataclasses import fields, replace

import pytest

import ddpnb
from ddpnb.errors import CannotWrite, UsageError
from ddpnb.recording import recording_file
from ddpnb.recording.account import Account, Parts, RankAccount, Straggler
from ddpnb.recording.calls import Group, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.marks import Mark
from ddpnb.recording.path import Block, Branch, Code, Kind, Path, number, word
from ddpnb.recording.recording import Child, Process, RankRecord, Recording
from ddpnb.recording.replicas import Digest, Model, Sample, TensorSpec
from ddpnb.recording.stacks import Frame
from ddpnb.recording.startup import StartupState, StepState
from tests.rules.recordings import Rank, Script, record

SCRIPT = Script(
    """
    def main(rank):
        all_reduce(x)  # reduce
        if rank == 0:
            barrier()  # barrier
    """
)


BASE = (word(Kind.BASE, 1), word(Kind.FRAME, 0, 8))
WORDS = (*BASE, word(Kind.BRANCH, 4, 9), word(Kind.CALL, 9, 1, 2), number(7, 3))
CODE = Code(
    "/a/train.py", "train", 3, "0a", True, (Block(0, 8, -1, 8),), (Branch(4, 33, 33, 8, 20, True, ("step",)),), ((0, 3), (4, 33))
)  # fmt: skip
PATH = Path({"MainThread": WORDS, "worker": BASE}, (CODE,), ("", "all_reduce", "default_pg"), 7, "too many threads.")


def full():
    """A recording with something in every field."""
    recording = record(
        Rank(0).calls("all_reduce", SCRIPT.at("reduce")).waits("barrier", SCRIPT.at("barrier")),
        Rank(1).calls("all_reduce", SCRIPT.at("reduce")).finishes(),
        script=SCRIPT,
    )
    spec = TensorSpec("net.weight", (3, 2), "float32")
    sample = Sample(
        1, "forward", 3, 2, 17, SCRIPT.at("reduce"), {"loss": 0.5, "why": None}, {"w": Digest(2**64 - 1, 0.25)}
    )
    ranks = {
        rank: replace(
            one,
            models=(Model(1, "DDP", "Net", "0,1#0", (0, 1), (spec,), {"static_graph": True}, SCRIPT.at("reduce")),),
            samples=(sample, replace(sample, turn=4, digests={})),
            children=(Child(12, "python worker", "S", 1.5),),
            process=Process("idle", 2.5, None, "a futex", memory=1 << 30, cores=0.1, device_busy=None),
            output="the end\n\x1b[31m of it",
            forgotten=3,
            marks=(Mark(0, "begin", 1, 7), Mark(1, "step", 5, 7, 2, 3, 1, 1, 4)),
            path=PATH,
        )
        for rank, one in recording.ranks.items()
    }
    ending = Ending("raised", 1, "ValueError", "no", (Frame("t.py", 3, "main", True, {"x": "1"}),), "Traceback", 99)
    ranks[1] = replace(ranks[1], ending=ending)
    straggler = Straggler(1, 0.5, 1.0, 2, ((SCRIPT.at("reduce"), 0.5),), "it computes longer")
    parts = Parts(1.0, 0.5, 0.25, 0.0)
    account = Account(
        (RankAccount(0, 2.0, parts, 0.25, 2, parts, 1.5, waited_for=((1, 0.5),)),), (straggler,), "one", 0.5
    )
    steps = {0: {"store": StepState("failed", 0.5, {"address": "a:1", "peers": [1]}, "no")}, 1: {}}
    return replace(
        recording,
        ranks=ranks,
        host={"cores": 2, "kills": [[1, "python"]]},
        taken_ns=1 << 62,
        account=account,
        startup=StartupState(2, steps, dead=(1,), stopped=(0,)),
    )


@pytest.fixture
def saved(tmp_path):
    full().save(tmp_path / "hang.ddpnb")
    return tmp_path / "hang.ddpnb"


def content(path):
    header, body = gzip.decompress(path.read_bytes()).split(b"\n")
    return json.loads(header), json.loads(body)


def rewrite(path, header, body):
    path.write_bytes(gzip.compress(f"{json.dumps(header)}\n{json.dumps(body)}".encode()))


def test_a_recording_is_shown_in_a_few_words():
    recording = Recording(2, {0: RankRecord(0), 1: RankRecord(1)}, {"a.py": "x" * 10_000})
    assert repr(recording).startswith("<Recording of 2 of 2 ranks, 0 calls: ddpnb.show() shows it")
    assert len(repr(recording)) < 150


def test_what_was_saved_is_loaded(saved):
    recording = recording_file.load(saved)
    assert recording == full()
    assert str(ddpnb.diagnose(recording)) == str(ddpnb.diagnose(full()))
    for rank, one in full().ranks.items():
        for call, again in zip(
            one.calls, recording.ranks[rank].calls, strict=True
        ):  # equal groups may have other names
            assert (call.group.name, call.group.label, call.site.via) == (
                again.group.name,
                again.group.label,
                again.site.via,
            )


def test_every_field_is_in_the_example():
    """A field that is added to a class must be saved too."""
    (one, *_), default = full().ranks.values(), Recording(2, {})
    empty = {"ranks", "sources", "host", "taken_ns"} - {
        f.name for f in fields(Recording) if getattr(full(), f.name) != getattr(default, f.name)
    }
    assert not empty and one.models and one.samples and one.children and one.calls


def test_calls_share_their_sites_groups_and_signatures(tmp_path):
    many = record(*[Rank(rank).calls(*["all_reduce", SCRIPT.at("reduce")] * 1) for rank in range(2)], script=SCRIPT)
    calls = tuple(replace(many.ranks[0].calls[0], number=n, seq=n + 1) for n in range(2000))
    many = replace(many, ranks={rank: replace(one, calls=calls) for rank, one in many.ranks.items()})
    many.save(tmp_path / "many.ddpnb")
    loaded = recording_file.load(tmp_path / "many.ddpnb")
    assert loaded == many and len({id(call.site) for call in loaded.ranks[0].calls}) == 1
    assert (tmp_path / "many.ddpnb").stat().st_size < 100_000


def test_the_same_recording_gives_the_same_file(saved, tmp_path):
    full().save(tmp_path / "again.ddpnb")
    assert saved.read_bytes() == (tmp_path / "again.ddpnb").read_bytes()


def test_a_field_of_a_later_version_is_skipped_and_a_missing_one_gets_its_default(saved):
    header, body = content(saved)
    names = header["fields"]["Recording"]
    names.append("weather")
    body["recording"].append("rain")
    del names[(at := names.index("taken_ns"))], body["recording"][at]
    rewrite(saved, header, body)
    assert recording_file.load(saved) == replace(full(), taken_ns=0)


def test_a_field_without_default_must_be_there(saved):
    header, body = content(saved)
    names = header["fields"]["Recording"]
    del names[(at := names.index("ranks"))], body["recording"][at]
    rewrite(saved, header, body)
    with pytest.raises(UsageError, match="is damaged"):
        recording_file.load(saved)


def test_names_cannot_drive_a_terminal(tmp_path):
    recording = full()
    site = Site("t.py", 1, "main")
    object.__setattr__(site, "function", "\x1b[31mred")
    call = replace(recording.ranks[0].calls[0], site=site, group=Group((0, 1), label="a\x07b"))
    replace(recording, ranks={0: replace(recording.ranks[0], calls=(call,))}).save(tmp_path / "odd.ddpnb")
    loaded = recording_file.load(tmp_path / "odd.ddpnb").ranks[0].calls[0]
    assert loaded.site.function.isprintable() and loaded.group.label.isprintable()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "damaged"),
        (b"hello", "is not a recording"),
        (gzip.compress(b"hello\n", mtime=0), "damaged"),
        (gzip.compress(b'{"format": "music"}\n', mtime=0), "is not a recording"),
        (gzip.compress(b"[]\n{}", mtime=0), "damaged"),
        (gzip.compress(b'{"format": "ddpnb recording", "version": 2}\n', mtime=0), "newer version"),
        (
            gzip.compress(b'{"format": "ddpnb recording", "version": 1, "fields": {}}\n' + b"[" * 100_000, mtime=0),
            "damaged",
        ),
        (gzip.compress(b"\xff" * 1000, mtime=0), "damaged"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path, data, message):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(UsageError, match=message):
        recording_file.load(tmp_path / "file")


@pytest.mark.parametrize("path", ["missing", ".", None, 7.5, "a\0b", b"x"], ids=repr)
def test_what_cannot_be_read_is_said(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        recording_file.load(path)


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(CannotWrite):
        full().save(tmp_path / "no" / "such" / "folder")
    with pytest.raises(UsageError):
        full().save(7.5)


def test_a_file_that_unpacks_to_more_than_may_be_read(saved, monkeypatch):
    monkeypatch.setattr(recording_file, "_MOST", 1000)
    with pytest.raises(UsageError, match="too large"):
        recording_file.load(saved)


@pytest.mark.parametrize("seed", range(300))
def test_a_damaged_file_is_refused_or_gives_a_recording(saved, seed):
    """Bytes of the packed file, or values of the JSON in it."""
    rng = random.Random(seed)
    if seed % 3 == 0:
        data = bytearray(saved.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        saved.write_bytes(bytes(data[: rng.choice([len(data), rng.randrange(len(data))])]))
    else:
        header, body = content(saved)
        for _ in range(rng.randint(1, 3)):
            _spoil(rng, rng.choice([header, body, body["recording"], body["tables"]]))
        rewrite(saved, header, body)
    try:
        recording = recording_file.load(saved)
    except UsageError:
        return
    str(ddpnb.diagnose(recording))


def _spoil(rng, value):
    """Put something else at a random place."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys:
            return
        key = rng.choice(list(keys))
        if not isinstance(value[key], (list, dict)) or not value[key] or rng.random() < 0.15:
            value[key] = rng.choice([None, -1, 1 << 70, 0.5, "\ud800", [], {}, True, [[[0]]], "x" * 10_000, 3])
            return
        value = value[key]


def test_ranks_share_the_codes_of_their_paths(saved):
    header, body = content(saved)
    assert len(body["tables"]["Code"]) == 1 and "PackedPath" in header["fields"] and "Path" not in header["fields"]


def test_of_long_paths_the_last_words_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(recording_file, "_WORDS", 4096)
    words = (*BASE, *[word(Kind.BRANCH, 4, n) for n in range(2000)]) * 3
    path = replace(PATH, threads={"MainThread": words, "worker": BASE})
    recording = replace(full(), ranks={n: replace(one, path=path) for n, one in full().ranks.items()})
    recording.save(tmp_path / "long.ddpnb")
    read = recording_file.load(tmp_path / "long.ddpnb").ranks[1].path
    kept = read.threads["MainThread"]
    assert kept == words[-len(kept) :] and len(kept) == 2002 and read.threads["worker"] == ()
    assert read.forgotten == PATH.forgotten + len(words) + len(BASE) - len(kept)


@pytest.mark.parametrize("words", ["?", "eJw=", "AAAA", 7, None])
def test_words_of_a_path_that_are_none(saved, words):
    header, body = content(saved)
    place = header["fields"]["RankRecord"].index("path")
    body["recording"][header["fields"]["Recording"].index("ranks")][0][1][place][0][0][1] = words
    rewrite(saved, header, body)
    with pytest.raises(UsageError):
        recording_file.load(saved)


def test_words_of_a_path_are_limited_and_checked(saved):
    """A few bytes can unpack to any number of words."""
    header, body = content(saved)
    place = header["fields"]["RankRecord"].index("path")
    threads = body["recording"][header["fields"]["Recording"].index("ranks")][0][1][place][0]
    threads[0][1] = base64.b64encode(zlib.compress(bytes(8 * 7_000_000))).decode()
    rewrite(saved, header, body)
    with pytest.raises(UsageError):
        recording_file.load(saved)
    wrong = array("Q", [*BASE, word(Kind.ENTER, 5)]).tobytes()
    threads[0][1] = base64.b64encode(zlib.compress(wrong)).decode()
    rewrite(saved, header, body)
    assert recording_file.load(saved).ranks[0].path.threads["MainThread"] == (*BASE, word(Kind.GAP))
