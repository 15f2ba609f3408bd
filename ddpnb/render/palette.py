"""Colours: Okabe and Ito's, safe for colour-blind readers, in shades that text can have on JupyterLab's surfaces.

Never colour alone: a symbol or a word always says the same.
"""

from __future__ import annotations

# role: (light theme, dark theme)
COLOURS = {
    "error": ("#b34700", "#ff945c"),
    "warning": ("#8a5a00", "#eaa50a"),
    "note": ("#006fae", "#60baee"),
    "ok": ("#00745a", "#2ec79b"),
}

# surfaces of widgets outside of JupyterLab, which brings its own: (light theme, dark theme)
_SURFACES = {
    "fg": ("--jp-ui-font-color1", "#1b1f24", "#e6edf3"),
    "bg": ("--jp-layout-color1", "#ffffff", "#111418"),
    "raised": ("--jp-layout-color2", "#f3f5f7", "#1c2127"),
    "line": ("--jp-border-color1", "#c9d0d7", "#3a424b"),
}
_FAINT = ("#57606a", "#a8b2bd")  # of JupyterLab's own greys none has contrast enough in both themes
BUSY = ("#56B4E9", "#56B4E9")  # computing: drawn, never written


def css() -> str:
    """The colours as CSS variables of everything below ``.ddpnb``, for light pages and for dark ones."""
    light, dark = (
        ";".join(
            [f"--ddpnb-{name}:var({of},{shades[shade]})" for name, (of, *shades) in _SURFACES.items()]
            + [f"--ddpnb-{role}:{shades[shade]}" for role, shades in COLOURS.items()]
            + [f"--ddpnb-faint:{_FAINT[shade]}", f"--ddpnb-busy:{BUSY[shade]}"]
        )
        for shade in (0, 1)
    )
    dark_pages = '[data-jp-theme-light="false"] .ddpnb,.vscode-dark .ddpnb,.vscode-high-contrast .ddpnb,[data-theme="dark"] .ddpnb'
    return f".ddpnb{{{light}}}\n{dark_pages}{{{dark}}}\n"


ANSI = {"error": "31", "warning": "33", "note": "34", "ok": "32", "bold": "1", "dim": "2"}

# One colour per rank prefix in a terminal; past these, position and number tell ranks apart.
RANK_ANSI = ("36", "35", "33", "32", "34", "96", "95", "93")
