"""Ranks that train replicas of one model, step by step."""

from __future__ import annotations

from tests.rules.recordings import Rank, asked, line, record

WRAPPED, STEP = line(3), line(9)


def step(rank, at=STEP, forward=None, backward=None, steps=1):
    for _ in range(steps):
        rank.forward(at, **(forward or {})).backward(at, **(backward or {})).gradients(at).updated(at)
    return rank


def some(culprits, odd, usual=step):
    """The culprits do one thing, the others another."""
    return lambda rank: odd(rank) if rank.rank in culprits else usual(rank)


def backward(steps=1, **facts):
    return lambda rank: step(rank, backward=facts, steps=steps)


def recorded(make, world=4, script=None, wraps=True):
    """``make(rank)`` says what each rank does with its model."""
    ranks = [Rank(number, world) for number in range(world)]
    for rank in ranks:
        make(rank.wraps(at=WRAPPED) if wraps else rank.adopts(at=WRAPPED))
    return record(*(rank.finishes() for rank in ranks), script=script)


def found(code, make, **more):
    return asked(code, recorded(make, **more))
