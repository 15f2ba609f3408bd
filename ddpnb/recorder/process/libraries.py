"""What libraries keep in the process between two runs, and a process of its own would not have.

Only those that are loaded are looked at; nothing is imported.
"""

from __future__ import annotations

import sys

from ddpnb.recorder.process.kernel_environment import VARIABLES

#: accelerate keeps what it knows of the process group in dictionaries of these classes
_ACCELERATE = ("PartialState", "AcceleratorState", "GradientState")
_TQDM = ("tqdm.auto", "tqdm.autonotebook")
_LIGHTNING = ("lightning.", "lightning_fabric.", "pytorch_lightning.")
_INTERACTIVE = "_IS_INTERACTIVE"


def begin(*, fresh: bool) -> None:
    """A run begins.

    Args:
        fresh: nothing of an earlier run lives on.
    """
    _forget_the_kernel()
    if fresh:
        _forget_groups()
        _forget_inline_figures()


def _forget_the_kernel() -> None:
    """Undo what libraries decide when they are imported, where ``%px`` imported them: it shows them a kernel."""
    if getattr(getattr(sys.modules.get(_TQDM[1]), "tqdm", None), "__module__", "") == "tqdm.notebook":
        for name in _TQDM:
            sys.modules.pop(name, None)
    for name, module in list(sys.modules.items()):
        if name.startswith(_LIGHTNING) and _INTERACTIVE in getattr(module, "__dict__", ()):
            setattr(module, _INTERACTIVE, False)


def _forget_inline_figures() -> None:
    """Let a script choose its backend as in a terminal, where ``%px`` or a cell imported matplotlib with that of a notebook."""
    matplotlib, pyplot = sys.modules.get("matplotlib"), sys.modules.get("matplotlib.pyplot")
    chosen, default = getattr(matplotlib, "rcParams", None), getattr(matplotlib, "rcParamsDefault", None)
    # By dict: to read or set this one in another way chooses a backend.
    if chosen is not None and default is not None and dict.get(chosen, "backend") == VARIABLES["MPLBACKEND"]:
        dict.update(chosen, {name: dict.get(default, name) for name in ("backend", "interactive")})
        if pyplot is not None:
            pyplot.__dict__["_backend_mod"] = None


def _forget_groups() -> None:
    """The group that these remember is gone: they would not make one again."""
    module = sys.modules.get("accelerate.state")
    for name in _ACCELERATE:
        state = getattr(getattr(module, name, None), "_shared_state", None)
        if isinstance(state, dict):
            state.clear()
