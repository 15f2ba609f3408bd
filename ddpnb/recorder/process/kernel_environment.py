"""What an IPython kernel sets in its environment, and an environment without it.

Standard library only, so that a launcher can import it without torch.
"""

from __future__ import annotations

from collections.abc import Mapping

#: each variable with the value that a kernel or an engine gives it; None: whatever its value, no plain process has it
VARIABLES: Mapping[str, str | None] = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "TERM": "xterm-color",
    "CLICOLOR": "1",
    "CLICOLOR_FORCE": "1",
    "FORCE_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PYDEVD_USE_FRAME_EVAL": "NO",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "JPY_PARENT_PID": None,
    "JPY_SESSION_NAME": None,
    "IPP_CLUSTER_ID": None,
    "IPP_PROFILE_DIR": None,
}
_OF_A_KERNEL = "JPY_PARENT_PID"  # set in a notebook's kernel, and in what it starts


def plain_environment(environment: Mapping[str, str]) -> dict[str, str | None]:
    """What the variables that a kernel sets were before one set them; None: not set.

    Args:
        environment: of this process before its own kernel began. A launcher in a notebook hands on what the
            notebook's kernel has set.
    """
    inherited = _OF_A_KERNEL in environment
    return {
        name: None if value is None or (inherited and environment.get(name) == value) else environment.get(name)
        for name, value in VARIABLES.items()
    }
