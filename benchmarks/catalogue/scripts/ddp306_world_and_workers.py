# expect: DDP306
# ranks: 4
# culprits: any
# outcome: hang
# plain: H
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class PipelineOfTeams:
    """Teams of two train together; now and then all teams compare their losses."""

    def __init__(self):
        self.rank, size = dist.get_rank(), dist.get_world_size()
        teams = [dist.new_group([r, r + 1]) for r in range(0, size, 2)]
        self.team = teams[self.rank // 2]
        self.leads = self.rank % 2 == 0
        net = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
        self.model = DistributedDataParallel(net, process_group=self.team)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def train_step(self):
        x = torch.randn(8, 5)
        loss = nn.functional.mse_loss(self.model(x), x[:, :1])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()

    def compare(self, loss):
        losses = [torch.zeros(()) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, loss)  # <- culprit
        return torch.stack(losses).argmin().item()

    def share_in_team(self, loss):
        value = loss.clone()
        dist.all_reduce(value, group=self.team)  # <- culprit
        return value / 2

    def round(self):
        loss = self.train_step()
        if self.leads:
            # team first, then the world
            mean = self.share_in_team(loss)
            return mean, self.compare(loss)
        winner = self.compare(loss)
        return self.share_in_team(loss), winner


def main():
    dist.init_process_group("gloo")
    job = PipelineOfTeams()
    for _ in range(3):
        mean, winner = job.round()
    print(job.rank, mean.item(), winner)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
