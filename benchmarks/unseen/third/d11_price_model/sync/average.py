import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class HierarchicalAverage:
    """Weighted mean of the parameters: inside the office, between speakers, and back."""

    def __init__(self, topology):
        self.topology = topology

    def _up(self, packed):
        topo = self.topology
        dist.reduce(packed, dst=topo.members[0], group=topo.office)
        if not topo.speaks:
            return
        dist.all_reduce(packed, group=topo.council)

    def _down(self, packed):
        dist.broadcast(packed, src=self.topology.members[0], group=self.topology.office)

    @torch.no_grad()
    def __call__(self, model, samples):
        vector = parameters_to_vector(model.parameters())
        packed = torch.cat([vector * samples, torch.tensor([float(samples)])])
        self._up(packed)
        self._down(packed)
        vector_to_parameters(packed[:-1] / packed[-1], model.parameters())
        return packed[-1].item()
