"""Python code in colours, as HTML: keywords, strings and comments, in the colours of the palette."""

from __future__ import annotations

from html import escape

from ddpnb.texts import printable

_LONGEST = 100_000  # characters that are coloured


def coloured(code: str) -> str:
    """The code as HTML, in which no element spans several lines. Its text may come from anywhere."""
    code = printable(code)
    if len(code) > _LONGEST:
        return escape(code)
    from pygments.lexers import PythonLexer
    from pygments.token import Comment, Keyword, Literal, Operator

    kinds = {Comment: "com", Keyword: "kw", Operator.Word: "kw", Literal.String: "str"}
    shown: list[str] = []
    for token, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(code):
        kind = next((name for one, name in kinds.items() if token in one), "")
        parts = (
            f'<span class="{kind}">{escape(part)}</span>' if kind and part else escape(part)
            for part in text.split("\n")
        )
        shown.append("\n".join(parts))
    return "".join(shown)
