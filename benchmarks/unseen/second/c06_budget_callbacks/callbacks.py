class Callback:
    def on_step(self, state):
        pass

    def should_stop(self, state):
        return False


class TokenBudget(Callback):
    """Ends the run after a number of tokens."""

    def __init__(self, limit):
        self.limit = limit

    def should_stop(self, state):
        return state["tokens"] >= self.limit


class MaxSteps(Callback):
    def __init__(self, limit):
        self.limit = limit

    def should_stop(self, state):
        return state["step"] >= self.limit


class LossTrace(Callback):
    def __init__(self, every=5):
        self.every, self.values = every, []

    def on_step(self, state):
        if state["step"] % self.every == 0:
            self.values.append(round(state["loss"], 4))
