"""What tells a program that it runs in a notebook: hidden while the user's code runs on a rank.

Frameworks ask these things to choose how to launch, what to print and what to draw. Lightning refuses DDP where it
sees a prompt; a rank has none.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ddpnb.recorder.process.kernel_environment import VARIABLES
from ddpnb.recorder.process.process_state import set_variables

_MISSING = object()
_PROMPTS = ("ps1", "ps2", "ps3")
_BUILTINS = ("get_ipython", "__IPYTHON__", "execfile", "runfile")
_OF_CELLS = "display"  # a cell may call it; without a shell display() prints
_SHELL = "ipykernel.zmqshell"  # tqdm looks for it
_HOOKS = ("displayhook", "breakpointhook", "excepthook")


@contextmanager
def hidden(plain: Mapping[str, str | None], *, prompt: bool = False) -> Iterator[None]:
    """Inside, the process looks like one without a notebook.

    Args:
        plain: from ``kernel_environment.plain_environment``. A variable that the user has set since stays.
        prompt: the lines of a cell run, which may call ``display()``.
    """
    changed = {name: os.environ[name] for name in plain if _is_a_kernels(name) and os.environ[name] != plain[name]}
    attributes = [(sys, name, getattr(sys, f"__{name}__", _MISSING)) for name in (*_PROMPTS, *_HOOKS)]
    attributes.append((builtins, "input", _no_input))
    attributes += [(builtins, name, _MISSING) for name in (*_BUILTINS, *(() if prompt else (_OF_CELLS,)))]
    attributes += [(kind, "_instance", None) for kind in _shells()]
    before = [(where, name, getattr(where, name, _MISSING)) for where, name, _ in attributes]
    shell = sys.modules.pop(_SHELL, None) if prompt else None  # a script or a function does not see ipykernel at all
    set_variables({name: plain[name] for name in changed})
    for where, name, value in attributes:
        _set(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            _set(where, name, value)
        if shell is not None:
            sys.modules[_SHELL] = shell
        set_variables({name: value for name, value in changed.items() if os.environ.get(name) == plain[name]})


def _no_input(_prompt: object = "", /) -> str:
    """What ``input`` is on a rank."""
    raise EOFError(
        "input() cannot be answered: ranks have no keyboard. Ask in the notebook and send the answer: "
        "answer = input(); world.execute(f'answer = {answer!r}')"
    )


def _is_a_kernels(name: str) -> bool:
    value = os.environ.get(name)
    return value is not None and value == (VARIABLES[name] or value)


def _shells() -> list[Any]:
    """The classes of IPython's shell that know the one shell there is: ``get_ipython()`` asks them."""
    kind = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    shell = getattr(kind, "_instance", None)
    return [base for base in type(shell).__mro__ if vars(base).get("_instance") is not None]


def _set(where: Any, name: str, value: Any) -> None:
    if value is not _MISSING:
        setattr(where, name, value)
    elif hasattr(where, name):
        delattr(where, name)
