"""Variables of the notebook."""

from __future__ import annotations

import sys


def assign(name: str, value: object) -> None:
    """Assign a value to a variable of this name in the notebook, if there is one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.push({name: value})
