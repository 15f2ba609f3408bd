import torch.nn as nn


class PersonalModel(nn.Module):
    """A trunk that all clinics share and a head that never leaves the clinic."""

    def __init__(self, n_in, n_out, width=24):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_in, width), nn.ReLU(),
                                   nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, n_out)
