"""The paths of a Recording as they are compared: with what is known of their last calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpnb.recording.calls import Call, CallState, Group
from ddpnb.recording.collectives import collectives
from ddpnb.recording.events.runs import RanksPart
from ddpnb.recording.path import BITS, KIND, MOST, A, B, C, Kind, Path
from ddpnb.recording.recording import Recording

_SEQ = (1 << 2 * BITS) - 1


def compared(recording: Recording) -> dict[int, Path]:
    """The path of each rank.

    Calls of one collective that do not match are no calls of one collective: each names its own tensors. Nor is one that is held since
    ranks come to it from different places.
    """
    apart: dict[int, dict[tuple[str, int], tuple[Call, str]]] = {}
    for group in collectives(recording).values():
        for one in group.values():
            if one.mismatched:
                for rank, call in one.calls.items():
                    apart.setdefault(rank, {})[call.op, call.seq] = call, str(call.signature)
    for rank in _elsewhere(recording):
        last = recording.ranks[rank].calls[-1]
        apart.setdefault(rank, {})[last.op, last.seq] = last, f"{last.op} (held)"
    return {
        rank: _known(record.path, apart.get(rank, {}))
        for rank, record in sorted(recording.ranks.items())
        if record.path is not None
    }


def _elsewhere(recording: Recording) -> set[int]:
    """Where ranks are held at a call since they came to it from different places, those that are not where the first of them is."""
    apart: dict[int, set[int]] = {}
    for rank, record in recording.ranks.items():
        last, events = record.calls[-1:], record.events(RanksPart)[-1:]
        if last and events and last[0].state is CallState.HELD and last[0].number == events[0].call:
            for peer in events[0].peers:
                known = recording.ranks.get(peer.rank)
                if known is not None and known.calls and known.calls[-1].seq == last[0].seq:
                    apart.setdefault(rank, set()).add(peer.rank)
                    apart.setdefault(peer.rank, set()).add(rank)
    return apart[min(apart)] if apart else set()


def _known(path: Path, apart: Mapping[tuple[str, int], tuple[Call, str]]) -> Path:
    if not apart:
        return path
    texts = list(path.texts)
    threads = dict(path.threads)
    for name, given in path.threads.items():
        words = list(given)
        at = [place for place, one in enumerate(words[:-1]) if one & KIND == Kind.CALL]
        for place in at:
            number = _text(texts, words[place] >> B & MOST), words[place + 1] >> A & _SEQ
            call, text = apart.get(number, (None, ""))
            if call is not None and _names(_text(texts, words[place] >> C), call.group):
                words[place] = words[place] & ~(MOST << B) | len(texts) << B
                texts.append(text)
        threads[name] = tuple(words)
    return replace(path, threads=threads, texts=tuple(texts))


def _text(texts: list[str], number: int) -> str:
    return texts[number] if number < len(texts) else ""


def _names(text: str, group: Group) -> bool:
    """Whether a word's text is the name of this group."""
    return text in (group.title, str(group)) or text.startswith(f"{group} [")
