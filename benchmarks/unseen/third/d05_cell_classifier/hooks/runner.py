from dataclasses import dataclass, field


@dataclass
class State:
    step: int = 0
    epoch: int = 0
    loss: float = 0.0


@dataclass
class HookRunner:
    """Calls every hook whose interval divides the step."""

    hooks: list = field(default_factory=list)
    state: State = field(default_factory=State)

    def every(self, steps, hook):
        self.hooks.append((steps, hook))
        return self

    def tick(self, loss):
        self.state.step += 1
        self.state.loss = loss
        for steps, hook in self.hooks:
            if self.state.step % steps == 0:
                hook(self.state)
