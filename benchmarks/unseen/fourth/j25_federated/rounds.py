import torch
import torch.nn.functional as F


class Round:
    def __init__(self, trunk, head, target=0.8, max_passes=6):
        self.trunk, self.head = trunk, head
        self.target, self.max_passes = target, max_passes
        self.head_optim = torch.optim.SGD(head.parameters(), lr=0.1)
        self.trunk_optim = torch.optim.Adam(trunk.parameters(), lr=3e-3)
        self.local_steps = 0

    def local_fit(self, clinic):
        """The head alone, until it is good enough for the trunk as it is."""
        for _ in range(self.max_passes):
            losses = []
            for x, y in clinic.batches():
                with torch.no_grad():
                    h = self.trunk.module(x)
                loss = F.cross_entropy(self.head(h), y)
                self.head_optim.zero_grad()
                loss.backward()
                self.head_optim.step()
                self.local_steps += 1
                losses.append(loss.item())
            if sum(losses) / len(losses) < self.target:
                break

    def shared_fit(self, clinic, steps=5):
        total = 0.0
        for _ in range(steps):
            x, y = clinic.draw()
            loss = F.cross_entropy(self.head(self.trunk(x)), y)
            self.trunk_optim.zero_grad()
            loss.backward()
            self.trunk_optim.step()
            total += loss.item()
        return total / steps
