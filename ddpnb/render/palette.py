"""Colours: Okabe and Ito's, safe for colour-blind readers, with darker shades for text on white.

Never colour alone: a symbol or a word always says the same.
"""

from __future__ import annotations

# role: (light theme, dark theme)
COLOURS = {
    "error": ("#b34700", "#ff8a4c"),
    "warning": ("#8a5a00", "#E69F00"),
    "note": ("#0072B2", "#56B4E9"),
    "ok": ("#00745a", "#2ec79b"),
}

ANSI = {"error": "31", "warning": "33", "note": "34", "ok": "32", "bold": "1", "dim": "2"}

# One colour per rank prefix in a terminal; past these, position and number tell ranks apart.
RANK_ANSI = ("36", "35", "33", "32", "34", "96", "95", "93")
