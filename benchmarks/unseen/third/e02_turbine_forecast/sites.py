"""Ten-minute SCADA records of wind turbines, one table per site."""
import torch

SITES = ["alta", "brenn", "corrib", "dolni", "eiger", "fosen", "gansu", "horns", "ijssel", "jaisal", "kriegers", "lynge"]
CHANNELS = ("wind", "pitch", "rotor", "gear_temp", "icing", "power")
# Field report of 2024-02: sensors that were iced in or unplugged during the recording.
FLATLINED = {"fosen": {"icing": 0.0}}


def read_site(name, steps=96):
    g = torch.Generator().manual_seed(100 + SITES.index(name))
    base = torch.randn(steps, len(CHANNELS), generator=g).cumsum(0) * 0.3
    base[:, 0] = base[:, 0].abs() + 2
    base[:, 5] = base[:, 0] * 0.8 - 0.2 * base[:, 1] + 0.05 * base[:, 5]
    for channel, value in FLATLINED.get(name, {}).items():
        base[:, CHANNELS.index(channel)] = value
    return base
