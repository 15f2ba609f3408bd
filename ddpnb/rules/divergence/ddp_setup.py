"""Findings about the setup of models, optimizers and conversions, before anything hangs or diverges."""

from __future__ import annotations

from ddpnb.facts.once import once
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules.divergence import stale_parameters
from ddpnb.rules.divergence.comm_hooks import comm_hooks
from ddpnb.rules.divergence.devices import devices
from ddpnb.rules.divergence.model_differs import model_differs
from ddpnb.rules.divergence.sync_batchnorm import sync_batchnorm
from ddpnb.rules.rule import findings_of


@once
def find(recording: Recording) -> list[Finding]:
    """Inconsistent setups of the ranks' models, hooks and optimizers, which may explain a failure."""
    stale = stale_parameters.find(recording)
    rules = (devices, model_differs, comm_hooks, sync_batchnorm)
    return [*(one for rule in rules for one in findings_of(recording, rule)), *([stale] if stale is not None else [])]
