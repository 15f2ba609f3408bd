class Callback:
    def on_step(self, state):
        pass

    def on_epoch(self, state):
        pass


class CallbackList:
    def __init__(self, items):
        self.items = items

    def fire(self, event, state):
        for item in self.items:
            getattr(item, event)(state)


class WarmLR(Callback):
    def __init__(self, optim, steps):
        self.optim, self.steps = optim, steps
        self.peak = optim.param_groups[0]["lr"]

    def on_step(self, state):
        self.optim.param_groups[0]["lr"] = self.peak * min(1.0, (state.step + 1) / self.steps)


class History(Callback):
    def __init__(self):
        self.values = []

    def on_epoch(self, state):
        self.values.append(state.valid)


class Patience(Callback):
    def __init__(self, epochs, delta):
        self.epochs, self.delta = epochs, delta
        self.best = float("inf")
        self.wait = 0

    def on_epoch(self, state):
        if state.valid < self.best - self.delta:
            self.best = state.valid
            self.wait = 0
            return
        self.wait += 1
        if self.wait >= self.epochs:
            state.finished = True
