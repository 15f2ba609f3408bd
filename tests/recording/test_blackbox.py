"""The reader of black boxes, over bytes packed by hand."""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import sys
import threading
import time

import pytest

from ddpnb.recording import blackbox as layout
from ddpnb.recording.blackbox import BoxReader, News
from ddpnb.recording.calls import NO_SITE, CallState, Group, Signature, Site
from ddpnb.recording.events import Unknown
from ddpnb.recording.events.startup import InitProcessGroup, StoreOpened
from ddpnb.recording.shared import FileBytes


class PackedBox:
    """A box as a rank would have written it, field by field."""

    def __init__(self) -> None:
        self.memory = bytearray(layout.BOX_SIZE)
        self.used = self.strings = self.call_count = self.event_count = 0
        self.first = (0, 0)
        layout.IDENTITY.pack_into(self.memory, 0, layout.MAGIC, 1, 2, 4711, 99)
        self.string({})

    def string(self, value: object) -> int:
        return self.raw_string(json.dumps(value).encode())

    def raw_string(self, data: bytes) -> int:
        at = layout.STRINGS_AT + self.used
        struct.pack_into("<I", self.memory, at, len(data))
        self.memory[at + 4 : at + 4 + len(data)] = data
        self.used += 4 + len(data)
        self.strings += 1
        self.write_status()
        return self.strings - 1

    def call(self, *, stamp: int | None = None, state: int = 4, **fields: int) -> int:
        """Append a call; ``stamp`` other than the number + 1 is what a torn record has."""
        number = self.call_count
        value = dict.fromkeys(
            ("group", "seq", "signature", "site", "thread", "tag", "timeout", "turn", "entered", "issued", "done"), 0
        )
        value |= {"peer": -1, **fields}
        layout.CALL.pack_into(
            self.memory,
            layout.CALLS_AT + number % layout.CALLS * layout.CALL_SIZE,
            number + 1 if stamp is None else stamp,
            *(value[name] for name in ("group", "seq", "signature", "site")),
            state,
            *(value[name] for name in ("thread", "peer", "tag", "timeout", "turn", "entered", "issued", "done")),
        )
        self.call_count += 1
        layout.PROGRESS.pack_into(self.memory, layout.PROGRESS_AT, self.call_count, value["entered"])
        return number

    def event(
        self, name: int, facts: int = 0, state: int = 1, end_facts: int = 0, times: tuple[int, int] = (0, 0)
    ) -> None:
        number = self.event_count
        at = layout.EVENTS_AT + number % layout.EVENTS * layout.EVENT_SIZE
        layout.EVENT.pack_into(self.memory, at, number + 1, name, facts, state, end_facts, *times)
        self.event_count += 1
        self.write_status()

    def checkpoint(
        self, number: int, name: bytes, run: int = 1, slot: int | None = None, size: int | None = None
    ) -> None:
        """Write a checkpoint; ``slot`` and ``size`` other than its own are what a damaged box has."""
        slot = layout.checkpoint_slot(number) if slot is None else slot
        at = layout.CHECKPOINTS_AT + slot * layout.CHECKPOINT_SIZE
        layout.CHECKPOINT.pack_into(self.memory, at, number, run, 0, 1, number, len(name) if size is None else size)
        begin = at + layout.CHECKPOINT.size
        self.memory[begin : begin + len(name)] = name
        struct.pack_into("<Q", self.memory, layout.PASSED_AT, number)

    def write_status(self, run: int = 1, state: int = layout.RUN_ACTIVE, steps: int = 0) -> None:
        layout.STATUS.pack_into(
            self.memory, layout.STATUS_AT, self.used, self.event_count, run, state, steps, *self.first
        )

    @property
    def reader(self) -> BoxReader:
        return BoxReader(self.memory)


@pytest.fixture
def box():
    return PackedBox()


def checkpoints(box):
    return [(event.number, event.name) for event in box.reader.events()]


# -- what was written comes back


def test_a_collective_comes_back_as_it_was_written(box):
    group = box.string({"ranks": [0, 2, 5], "ordinal": 1, "name": "3", "label": "tp"})
    signature = box.string(
        {
            "op": "reduce",
            "shapes": [[2, 3], []],
            "dtypes": ["float32", "int64"],
            "reduce_op": "sum",
            "root": 2,
            "layout": "strides [1, 3]",
            "agreed": "reduce|6 torch.float32",
            "device": "cuda",
        }
    )
    site = box.string({"file": "train.py", "line": 91, "function": "main"})
    box.call(
        group=group, seq=57, signature=signature, site=site, state=3, thread=12,
        timeout=2500, entered=10, issued=11, done=1 << 40,
    )  # fmt: skip

    (call,) = box.reader.calls()

    assert call.number == 0
    assert call.group == Group((0, 2, 5), 1)
    assert (call.group.name, call.group.label) == ("3", "tp")
    assert call.seq == 57
    assert call.signature == Signature(
        "reduce", ((2, 3), ()), ("float32", "int64"), "sum", 2, "strides [1, 3]",
        agreed="reduce|6 torch.float32", device="cuda",
    )  # fmt: skip
    assert call.site == Site("train.py", 91, "main")
    assert call.state is CallState.WAITING
    assert (call.thread, call.timeout_ms) == (12, 2500)
    assert (call.entered_ns, call.issued_ns, call.done_ns, call.asked_ns) == (10, 11, 0, 1 << 40)


def test_splits_come_back_as_tuples(box):
    signature = box.string({"op": "all_to_all_single", "in_splits": [1, 0], "out_splits": [2, 3]})
    box.call(signature=signature, seq=1)
    (call,) = box.reader.calls()
    assert (call.signature.in_splits, call.signature.out_splits) == ((1, 0), (2, 3))


@pytest.mark.parametrize(("peer", "tag"), [(3, 9), (-1, 0)])
def test_peer_tag_and_turn_of_a_receive_come_back(box, peer, tag):
    box.call(signature=box.string({"op": "recv"}), peer=peer, tag=tag, turn=6)
    (call,) = box.reader.calls()
    assert (call.peer, call.tag, call.turn, call.seq, call.is_p2p) == (peer, tag, 6, 0, True)


@pytest.mark.parametrize("state", list(CallState))
def test_every_state_comes_back(box, state):
    box.call(state=int(state))
    assert box.reader.calls()[0].state is state


def test_the_status_vector_comes_back(box):
    box.first = (7, 3)
    box.event_count = 4
    box.write_status(run=6, state=layout.RUN_ENDED, steps=120)
    layout.PROGRESS.pack_into(box.memory, layout.PROGRESS_AT, 9, 1 << 50)

    status = box.reader.status

    assert (status.pid, status.main_thread) == (4711, 99)
    assert (status.calls, status.progress_ns, status.events) == (9, 1 << 50, 4)
    assert (status.run, status.run_state, status.steps) == (6, layout.RUN_ENDED, 120)
    assert (status.first_call, status.first_event) == (7, 3)


def test_an_event_has_the_facts_of_its_beginning_and_of_its_end(box):
    name = box.string({"phase": "init_process_group"})
    facts = box.string({"world_size": "4", "rank": "1"})
    learned = box.string({"size": 4, "rank": 1})
    box.event(name, facts, state=1, end_facts=learned, times=(5, 8))

    (event,) = box.reader.events()

    assert event == InitProcessGroup(state="done", began_ns=5, ended_ns=8, world_size=4, rank=1, size=4)


@pytest.mark.parametrize(("number", "state"), list(enumerate(layout.EVENT_STATES)))
def test_every_state_of_an_event_comes_back(box, number, state):
    box.event(box.string({"phase": "new_group"}), state=number)
    assert box.reader.events()[0].state == state


def test_a_box_is_read_from_bytes_too(box):
    box.call(seq=3)
    assert [call.seq for call in BoxReader(bytes(box.memory)).calls()] == [3]


def test_closing_the_reader_lets_the_mapping_be_closed(box):
    mapping = mmap.mmap(-1, layout.BOX_SIZE)
    mapping[:] = bytes(box.memory)
    reader = BoxReader(mapping)
    reader.calls()
    reader.close()
    mapping.close()
    assert mapping.closed


# -- which calls and events


def test_calls_are_given_oldest_first(box):
    for seq in (1, 2, 3):
        box.call(seq=seq)
    assert [call.seq for call in box.reader.calls()] == [1, 2, 3]


@pytest.mark.parametrize(("last", "numbers"), [(2, [3, 4]), (1, [4]), (0, []), (99, [0, 1, 2, 3, 4])])
def test_only_the_last_calls_are_given(box, last, numbers):
    for _ in range(5):
        box.call()
    assert [call.number for call in box.reader.calls(last)] == numbers


def test_a_ring_that_has_come_round_gives_the_newest(box):
    box.call_count = layout.CALLS - 2
    for _ in range(5):
        box.call()
    assert [call.number for call in box.reader.calls()] == list(range(layout.CALLS - 2, layout.CALLS + 3))


def test_a_ring_of_events_that_has_come_round_gives_the_newest(box):
    for number in range(layout.EVENTS + 3):
        box.event(box.string({"phase": f"event {number}"}))
    events = box.reader.events()
    assert len(events) == layout.EVENTS
    assert (events[0].title, events[-1].title) == ("event 3", f"event {layout.EVENTS + 2}")


def test_what_an_earlier_run_did_is_left_out(box):
    name = box.string({"phase": "store"})
    for _ in range(3):
        box.call()
        box.event(name)
    box.first = (2, 1)
    box.write_status()
    assert [call.number for call in box.reader.calls()] == [2]
    assert len(box.reader.events()) == 2


def test_strings_that_come_later_are_seen_by_the_same_reader(box):
    reader = box.reader
    box.call(site=1)
    assert reader.calls()[0].site == NO_SITE
    box.string({"file": "late.py", "line": 3, "function": "f"})
    assert reader.calls()[0].site == Site("late.py", 3, "f")


def test_an_event_that_begins_while_one_looks_is_whole_or_not_there(box):
    """Without the facts of its beginning it would say that this rank asks for no backend at all."""

    class Looking(BoxReader):
        def _read_strings(self):
            super()._read_strings()
            box.event(box.string({"phase": "init_process_group"}), box.string({"backend": "gloo"}))

    reader = Looking(box.memory)
    for _ in range(3):
        assert all(isinstance(e, InitProcessGroup) and e.backend == "gloo" for e in reader.events())
    assert len(reader.events()) == 3


def test_many_threads_may_read_one_box(box):
    """Two that took the same new string both kept it, and all that came later had another's number."""
    texts = [{"text": number} for number in range(4000)]
    numbers = [box.string(text) for text in texts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            reader = BoxReader(box.memory)
            together = threading.Barrier(4)
            threads = [threading.Thread(target=lambda: (together.wait(10), reader.calls())) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert [reader.string(number) for number in numbers] == texts
    finally:
        sys.setswitchinterval(interval)


# -- what cannot be trusted


@pytest.mark.parametrize(
    "memory",
    [b"", b"ddpnbBB1", bytes(layout.BOX_SIZE), b"ddpnbBB2" + bytes(layout.BOX_SIZE)],
    ids=["empty", "magic alone", "zeros", "other version"],
)
def test_what_is_no_box_is_refused(memory):
    with pytest.raises(ValueError, match="not a black box"):
        BoxReader(memory)


def test_a_box_that_was_cut_short_is_refused(box):
    with pytest.raises(ValueError, match="not a black box"):
        BoxReader(box.memory[:-1])


@pytest.mark.parametrize("stamp", [0, 1, layout.CALLS + 2, (1 << 64) - 1])
def test_a_call_that_is_being_overwritten_is_left_out(box, stamp):
    box.call(seq=1)
    box.call(seq=2, stamp=stamp)
    box.call(seq=3)
    assert [call.seq for call in box.reader.calls()] == [1, 3]


@pytest.mark.parametrize("state", [0, len(CallState) + 1, 0xFFFFFFFF])
def test_a_call_in_no_known_state_is_left_out(box, state):
    box.call(state=state)
    box.call(seq=2)
    assert [call.seq for call in box.reader.calls()] == [2]


def test_an_event_in_no_known_state_is_left_out(box):
    name = box.string({"phase": "store"})
    box.event(name, state=len(layout.EVENT_STATES))
    box.event(name, state=0)
    assert [event.state for event in box.reader.events()] == ["open"]


def test_an_event_that_is_being_overwritten_is_left_out(box):
    box.event(box.string({"phase": "store"}))
    struct.pack_into("<Q", box.memory, layout.EVENTS_AT, layout.EVENTS + 1)
    assert box.reader.events() == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[1, 2]",
        b"7",
        b"null",
        b'"text"',
        b'{"line": null}',
        b'{"line": "x"}',
        b'{"line": NaN}',
        b'{"line": Infinity}',
        b'{"line": ' + b"9" * 5000 + b"}",
        b"[" * 5000,
    ],
    ids=lambda data: data[:18].decode("latin-1") or "empty",
)
def test_a_site_that_does_not_parse_is_unknown_and_the_next_string_is_read(box, data):
    broken = box.raw_string(data)
    whole = box.string({"file": "train.py", "line": 5, "function": "main"})
    box.call(site=broken)
    box.call(site=whole)
    assert [call.site for call in box.reader.calls()] == [NO_SITE, Site("train.py", 5, "main")]


@pytest.mark.parametrize(
    "value",
    [{"ranks": 3}, {"ranks": [None]}, {"ranks": ["a"]}, {"ranks": [0], "ordinal": []}, {"truncated": "{..."}],
    ids=str,
)
def test_a_group_that_does_not_parse_has_no_ranks(box, value):
    box.call(group=box.string(value), seq=1)
    assert box.reader.calls()[0].group.ranks == ()


@pytest.mark.parametrize(
    "value",
    [
        {"shapes": 3},
        {"shapes": [4]},
        {"shapes": [["a", "b"]], "dtypes": ["float32"]},
        {"dtypes": 1},
        {"root": "first"},
        {"in_splits": 5},
        {"in_splits": ["a"], "out_splits": [None]},
        {"reduce_op": ["SUM"], "layout": {"a": 1}},
        {"reduce_op": 3, "layout": 7},
        {"shapes": [[float("inf")]]},
    ],
    ids=str,
)
def test_a_signature_that_does_not_parse_can_still_be_worked_with(box, value):
    """The analysis multiplies sizes, compares roots and adds splits."""
    box.call(signature=box.string({"op": "all_reduce", **value}), seq=1)
    (call,) = box.reader.calls()
    assert all(isinstance(count, int) for count in call.signature.elements)
    assert isinstance(call.signature.root, int | None)
    for splits in (call.signature.in_splits, call.signature.out_splits):
        assert splits is None or all(isinstance(count, int) for count in splits)
    assert str(call.signature) and isinstance(hash(call.signature), int)


@pytest.mark.parametrize("number", [1, 5000, 0xFFFFFFFF])
def test_a_number_past_the_table_of_strings_means_unknown(box, number):
    box.call(group=number, signature=number, site=number, seq=1)
    box.event(number, number, end_facts=number)
    (call,) = box.reader.calls()
    assert (call.group, call.signature, call.site) == (Group(()), Signature("?"), NO_SITE)
    (event,) = box.reader.events()
    assert event == Unknown(state="done")


def test_facts_that_are_no_object_are_left_out(box):
    name = box.string({"phase": "store"})
    box.event(name, box.string([1, 2]), end_facts=box.string("text"))
    assert box.reader.events() == (StoreOpened(),)


def test_a_string_that_claims_to_be_longer_than_the_table_ends_it(box):
    whole = box.string({"file": "a.py", "line": 1, "function": "f"})
    struct.pack_into("<I", box.memory, layout.STRINGS_AT + box.used, 0xFFFFFFFF)
    box.used += 64
    box.write_status()
    box.call(site=whole)
    box.call(site=whole + 1)
    assert [call.site for call in box.reader.calls()] == [Site("a.py", 1, "f"), NO_SITE]


def test_a_table_that_claims_to_be_endless_is_read_to_its_end(box):
    """The calls lie behind the table: they must not be taken for strings."""
    struct.pack_into("<I", box.memory, layout.STRINGS_AT + box.used, layout.STRINGS_SIZE)
    box.used = (1 << 64) - 1
    box.write_status()
    for _ in range(8):
        box.call(site=1)
    assert [call.site for call in box.reader.calls()] == [NO_SITE] * 8


@pytest.mark.parametrize("total", [1 << 63, (1 << 64) - 1])
def test_a_number_of_calls_that_cannot_be_gives_none(box, total):
    box.call(seq=1)
    layout.PROGRESS.pack_into(box.memory, layout.PROGRESS_AT, total, 0)
    box.event_count = total
    box.write_status()
    assert box.reader.calls() == ()
    assert box.reader.events() == ()


def test_a_run_that_begins_after_the_last_call_has_none(box):
    box.call()
    box.first = (1 << 40, 1 << 40)
    box.write_status()
    assert box.reader.calls() == ()
    assert box.reader.events() == ()


@pytest.mark.parametrize("seed", range(3))
def test_garbage_never_raises(seed):
    memory = bytearray(random.Random(seed).randbytes(layout.BOX_SIZE))
    memory[:8] = layout.MAGIC
    reader = BoxReader(memory)
    assert reader.status.pid >= 0
    assert len(reader.calls()) <= layout.CALLS
    assert len(reader.events()) <= layout.EVENTS


@pytest.mark.parametrize("seed", range(30))
def test_a_box_that_is_damaged_anywhere_never_raises_and_ends(box, seed):
    """The header counts and places everything else: a wrong number there must not send the reader astray."""
    dice = random.Random(seed)
    for text in range(40):
        number = box.string({"file": "train.py", "line": text, "function": "main", "ranks": [0, 1], "op": "barrier"})
        box.call(group=number, seq=text, signature=number, site=number)
        box.event(number, number)
    reader = box.reader
    reader.calls()
    for _ in range(5):
        for _ in range(dice.choice((1, 8, 200))):
            first = dice.choice((layout.STRINGS_AT, layout.CALLS_AT, layout.EVENTS_AT))
            at = dice.choice(
                (dice.randrange(8, 256), dice.randrange(first, first + 2500), dice.randrange(8, layout.BOX_SIZE))
            )
            box.memory[at] = dice.choice((0, 255, dice.randrange(256)))
        if dice.random() < 0.2:
            layout.TABLE.pack_into(box.memory, layout.TABLE_AT, dice.randrange(1 << 32), dice.randrange(1 << 32))
        for one in (reader, box.reader):
            assert len(one.calls()) <= layout.CALLS
            assert len(one.events()) <= layout.EVENTS
            assert len(one.marks()) <= layout.MARKS
            assert one.status.pid >= 0 and one.dropped >= 0
            assert len(News(one).look()[0]) <= layout.CALLS
            one.string(dice.randrange(1 << 32))


def test_a_table_of_nothing_but_zeros_is_read_quickly(box):
    """As where the file was cut short."""
    box.used = layout.STRINGS_SIZE
    box.write_status()
    box.memory[layout.STRINGS_AT : layout.STRINGS_AT + layout.STRINGS_SIZE] = bytes(layout.STRINGS_SIZE)
    began = time.monotonic()
    assert box.reader.string(1 << 19) is None
    assert time.monotonic() - began < 20


# -- files


@pytest.fixture
def file(box, tmp_path):
    path = tmp_path / "rank0.box"
    site = box.string({"file": "train.py", "line": 5, "function": "main"})
    box.event(box.string({"phase": "store"}))
    for _ in range(3):
        box.call(site=site)
    path.write_bytes(box.memory)
    return path


def test_a_file_is_read_as_a_buffer_is(box, file):
    reader = BoxReader(FileBytes(str(file)))
    assert reader.status == box.reader.status
    assert reader.calls() == box.reader.calls()
    assert reader.events() == box.reader.events()


@pytest.mark.parametrize("size", [0, 100, layout.HEADER_SIZE, layout.STRINGS_AT + 10, layout.CALLS_AT + 100])
def test_a_file_that_is_cut_short_while_it_is_read_kills_nobody(file, size):
    """Through a mapping the reader, the user's notebook, died of SIGBUS."""
    reader = BoxReader(FileBytes(str(file)))
    os.truncate(file, size)
    assert len(reader.calls()) <= 3
    reader.events(), reader.marks(), News(reader).look()
    assert reader.status.calls == (3 if size > 100 else 0 if size == 0 else reader.status.calls)
    with pytest.raises(ValueError, match="not a black box"):
        BoxReader(FileBytes(str(file)))


def test_a_reader_keeps_the_file_that_it_has_opened(box, file, tmp_path):
    reader = BoxReader(FileBytes(str(file)))
    other = tmp_path / "other"
    other.write_bytes(bytes(layout.BOX_SIZE))
    os.replace(other, file)
    assert len(reader.calls()) == 3


def test_a_damaged_table_is_read_once(box):
    """A look-up reads what is new, up to 4 MB: a string that never ends would be new forever."""
    box.string({"phase": "store"})
    struct.pack_into("<I", box.memory, layout.STRINGS_AT + box.used, 1 << 30)
    box.used = layout.STRINGS_SIZE
    box.write_status()
    sizes = []

    class Counted(FileBytes):
        def __init__(self):
            pass

        def __len__(self):
            return layout.BOX_SIZE

        def read(self, at, size):
            sizes.append(size)
            return bytes(box.memory[at : at + size])

    reader = BoxReader(Counted())
    for _ in range(5):
        assert reader.string(1) == {"phase": "store"}
    assert sum(size > 100_000 for size in sizes) == 1


# -- checkpoints


def test_checkpoints_are_events_in_their_order_in_time(box):
    box.event(box.string({"phase": "store"}), times=(2, 2))
    box.write_status()
    for number, name in enumerate((b"a", b"b", b"c"), 1):
        box.checkpoint(number, name)
    assert [event.title for event in box.reader.events()] == ["checkpoint", "store", "checkpoint", "checkpoint"]


def test_the_first_and_the_last_checkpoints_are_kept(box):
    box.write_status()
    for number in range(1, 1001):
        box.checkpoint(number, b"step")
    first, later = layout.FIRST_CHECKPOINTS, layout.CHECKPOINTS - layout.FIRST_CHECKPOINTS
    kept = [number for number, _ in checkpoints(box)]
    assert kept == [*range(1, first + 1), *range(1001 - later, 1001)]


def test_checkpoints_of_another_run_are_left_out(box):
    box.write_status()
    box.checkpoint(1, b"old", run=7)
    assert checkpoints(box) == []


def test_damaged_checkpoints_are_left_out_or_cut(box):
    box.write_status()
    box.checkpoint(5, b"elsewhere", slot=9)
    box.checkpoint(2, b"", slot=1, size=1 << 31)
    box.checkpoint(3, b"\xff\xfename")
    assert [(number, name.strip("\0")) for number, name in checkpoints(box)] == [(2, ""), (3, "name")]
    struct.pack_into("<Q", box.memory, layout.PASSED_AT, (1 << 64) - 1)
    box.checkpoint((1 << 64) - 1, b"far")
    assert len(checkpoints(box)) <= 4
