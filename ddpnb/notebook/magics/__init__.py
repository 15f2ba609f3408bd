"""The magics, registered by ``%load_ext ddpnb``. Each calls a method of ``World``.

``arguments``: what is written behind a magic, as values. ``commands``: the magics. ``following``: a cell
that is shown while it runs. ``completion``: Tab in a cell of the ranks. ``px``: ipyparallel's own magics on the ranks.
"""

from __future__ import annotations

from typing import Any


def load(shell: Any) -> None:
    """Register the magics with this IPython shell."""
    from ddpnb.notebook.magics.commands import WORDS, DdpMagics
    from ddpnb.notebook.magics.completion import RankNames, register

    magics = DdpMagics(shell)
    shell.register_magics(magics)
    shell.events.register("pre_run_cell", magics.px.refresh)
    register(shell, RankNames(magics._world))
    for name, words in WORDS.items():
        shell.set_hook("complete_command", lambda _shell, _event, words=words: list(words), str_key=name)
