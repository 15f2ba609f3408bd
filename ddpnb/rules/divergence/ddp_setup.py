"""Findings about the setup of models, optimizers and conversions, before anything hangs or diverges."""

from __future__ import annotations

from ddpnb.facts.digests import models_of
from ddpnb.facts.once import once
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules.divergence import comm_hooks, devices, model_differs, stale_parameters, sync_batchnorm


@once
def find(recording: Recording) -> list[Finding]:
    """Inconsistent setups of the ranks' models, hooks and optimizers."""
    found = []
    for models in models_of(recording).values():
        wrapped = {rank: model for rank, model in models.items() if model.wrapper}
        finding = devices.find(wrapped) or model_differs.find(wrapped)
        if finding is not None:
            found.append(finding)
    others = (comm_hooks.find(recording), sync_batchnorm.find(recording), stale_parameters.find(recording))
    return found + [finding for finding in others if finding is not None]
