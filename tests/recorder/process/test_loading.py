"""Importing the recorder: no collection falls into it, and the caller's setting is back afterwards."""

from __future__ import annotations

import gc

import pytest

from ddpnb.recorder.process.loading import without_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_the_setting_of_the_caller_is_restored(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with without_collection():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        with pytest.raises(ImportError), without_collection():
            raise ImportError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
