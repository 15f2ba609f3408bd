"""The mark of tests that need the stand-in."""

from __future__ import annotations

import pytest
import torch

#: torch has back ends in Python since 2.14
needed = pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d, "PreHookArgs"), reason="back ends in Python: torch 2.14 and later"
)
