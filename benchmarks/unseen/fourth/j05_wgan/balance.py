"""Gives the next turn to the player that lags behind."""


class Balancer:
    def __init__(self, low, high, momentum=0.5, warmup=5):
        self.low, self.high = low, high
        self.momentum = momentum
        self.warmup = warmup
        self.gap = 0.0
        self.turns = 0
        self.player = "critic"

    def update(self, gap):
        self.turns += 1
        self.gap = self.momentum * self.gap + (1 - self.momentum) * gap
        if self.turns < self.warmup:
            return
        self.player = self._choose()

    def _choose(self):
        if self.gap > self.high:
            return "generator"
        if self.gap < self.low or self.turns % 12:
            return "critic"
        return "generator"
