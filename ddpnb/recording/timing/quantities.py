"""Durations and shares as text."""

from __future__ import annotations


def span(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.1f} ms"


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"
