"""Tests of what not every supported torch has are skipped there, by name.

As a program: what the torch of this environment does not have, and what is done without it.
"""

from __future__ import annotations

import pytest
import torch

from ddpnb.recorder.events.torch_names import NAMES, TESTED, has


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where torch does not have a name of the table; the reason says what is missing or done then."""
    row = next(one for one in NAMES if one.name == name)
    return pytest.mark.skipif(
        not has(name), reason=f"torch {torch.__version__} has no {name}: {row.without or row.instead}"
    )


if __name__ == "__main__":
    print(f"torch {torch.__version__}, tested with {TESTED[0][0]}.{TESTED[0][1]} to {TESTED[1][0]}.{TESTED[1][1]}")
    for row in NAMES:
        if not has(row.name):
            print(f"  no {row.name}: {row.without or row.instead}")
