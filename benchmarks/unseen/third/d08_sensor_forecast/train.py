"""Short-term forecasts of plant sensors, one site per rank."""
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from agreement import SharedScale, anyone
from plant import SENSORS, Plant


def read(plant, sensor, hour):
    try:
        return plant.window(sensor, hour)
    except EOFError:
        return None


class Forecaster:
    def __init__(self, plant, lr=0.02):
        torch.manual_seed(plant.width)
        self.plant = plant
        self.model = DistributedDataParallel(
            nn.Sequential(nn.Linear(plant.width, 24), nn.Tanh(), nn.Linear(24, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.scales = SharedScale()
        self.skipped = 0
        self.best, self.stale = math.inf, 0

    def step(self, sensor, hour):
        values = read(self.plant, sensor, hour)
        if anyone(values is None):
            self.skipped += 1
            return None
        values = values / self.scales.get(sensor, values)
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(values[:, :-1]).squeeze(-1), values[:, -1])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def day(self, day):
        losses = []
        for sensor in SENSORS:
            if day and self.plant.site % 2 == day % 2:
                self.scales.forget(sensor)
            for hour in self.plant.hours_of(day)[:8]:
                loss = self.step(sensor, hour)
                if loss is None:
                    continue
                losses.append(loss)
        return sum(losses) / max(1, len(losses))

    def finished(self, score, patience=2):
        improved = score < self.best * 0.98
        self.best = min(self.best, score)
        self.stale = 0 if improved else self.stale + 1
        return anyone(self.stale >= patience)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    forecaster = Forecaster(Plant(site=rank))
    for day in range(5):
        score = forecaster.day(day)
        if rank == 0:
            print(f"day {day}: {score:.4f}, skipped {forecaster.skipped}", flush=True)
        if forecaster.finished(score):
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
