"""The magics: ``%load_ext ddpnb`` brings them. Doors to the methods of ``World``, a few lines each.

``arguments``: what is written behind a magic, as values. ``commands``: the magics. ``following``: a cell
that is shown while it runs. ``px``: ipyparallel's own magics on the ranks.
"""

from __future__ import annotations

from typing import Any


def load(shell: Any) -> None:
    """Register the magics with this shell of IPython."""
    from ddpnb.magics.commands import WORDS, DdpMagics

    magics = DdpMagics(shell)
    shell.register_magics(magics)
    shell.events.register("pre_run_cell", magics.px.refresh)
    for name, words in WORDS.items():
        shell.set_hook("complete_command", lambda _shell, _event, words=words: list(words), str_key=name)
