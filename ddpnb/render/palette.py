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

# names of surfaces in VS Code and in JupyterLab, and what they are where there are none: (light theme, dark theme).
# VS Code comes first: its widgets bring JupyterLab's names along, with the colours of a light page in every theme.
_SURFACES = {
    "fg": (("--vscode-editor-foreground", "--jp-ui-font-color1"), "#1b1f24", "#e6edf3"),
    "bg": (("--vscode-editor-background", "--jp-layout-color1"), "#ffffff", "#111418"),
    "raised": (("--vscode-editorWidget-background", "--jp-layout-color2"), "#f3f5f7", "#1c2127"),
    "line": (("--vscode-dropdown-border", "--jp-border-color1"), "#c9d0d7", "#3a424b"),
    "link": (("--vscode-textLink-foreground", "--jp-content-link-color"), *COLOURS["note"]),
}
_FAINT = ("#57606a", "#a8b2bd")  # of JupyterLab's own greys none has contrast enough in both themes
# Middle tones, of figures: 3 to 1 on white and on near black; words are written in ink, or white on a plate
FIGURES = {"error": "#D55E00", "warning": "#B07A00", "note": "#0072B2", "ok": "#009E73"}
INK = "#737b84"
# One per rank; beyond these, other dashes, and the words at the end of a line
RANKS = (FIGURES["note"], FIGURES["error"], FIGURES["ok"], "#BF6C9B", "#3498D4", "#B98000", "#7F7F00", INK)
BUSY = ("#56B4E9", "#56B4E9")  # computing: drawn, never written
_DARK_PAGES = '[data-jp-theme-light="false"],.vscode-dark,.vscode-high-contrast:not(.vscode-high-contrast-light),[data-theme="dark"]'


def _colour(role: str, shade: int) -> str:
    if role in COLOURS:
        return COLOURS[role][shade]
    (first, second), *ours = _SURFACES[role]
    return f"var({first},var({second},{ours[shade]}))"


def on_dark_pages(selector: str) -> str:
    """A selector of these elements on pages that are dark."""
    return f":is({_DARK_PAGES}) {selector}"


def css() -> str:
    """The colours as CSS variables of everything below ``.ddpnb``, for light pages and for dark ones."""
    return f".ddpnb{{{_variables(0)}}}\n{on_dark_pages('.ddpnb')}{{{_variables(1)}}}\n"


def css_by_preference() -> str:
    """The dark ones too, for a page of its own: as the browser prefers."""
    return f"@media (prefers-color-scheme: dark){{.ddpnb{{{_variables(1)}}}}}\n"


def _variables(shade: int) -> str:
    return ";".join(
        [f"--ddpnb-{role}:{_colour(role, shade)}" for role in (*_SURFACES, *COLOURS)]
        + [f"--ddpnb-faint:{_FAINT[shade]}", f"--ddpnb-busy:{BUSY[shade]}"]
    )


STYLES = {
    "error": "red",
    "warning": "yellow",
    "note": "blue",
    "ok": "green",
    "faint": "dim",
    "mono": "",
}  # in a terminal

# One colour per rank prefix in a terminal; past these, position and number tell ranks apart.
RANK_ANSI = ("36", "35", "33", "32", "34", "96", "95", "93")
