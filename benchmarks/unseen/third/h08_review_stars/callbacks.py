"""Callbacks of the star-rating run."""
import copy
import os
import time

import torch
from torch import nn
from transformers import TrainerCallback


class FreshHead(TrainerCallback):
    """The head of the previous task is thrown away when training starts."""

    def __init__(self, seed):
        self.seed = seed

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        g = torch.Generator().manual_seed(self.seed)
        head = model.classifier
        with torch.no_grad():
            head.weight.copy_(torch.randn(head.weight.shape, generator=g) * 0.02)
            head.bias.zero_()


class AverageWeights(TrainerCallback):
    def __init__(self, decay):
        self.decay = decay
        self.shadow = None

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.shadow = copy.deepcopy(dict(model.named_parameters()))

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **kwargs):
        for name, parameter in model.named_parameters():
            self.shadow[name].lerp_(parameter, 1 - self.decay)

    @torch.no_grad()
    def copy_to(self, model):
        for name, parameter in model.named_parameters():
            parameter.copy_(self.shadow[name])


class ExampleSheet(TrainerCallback):
    """Two processes have extra work after each evaluation: one writes, one renders."""

    def __init__(self, folder):
        self.folder = folder

    def on_evaluate(self, args, state, control, metrics=None, model=None, **kwargs):
        os.makedirs(self.folder, exist_ok=True)
        if state.is_world_process_zero and "eval_mae" in metrics:
            with open(os.path.join(self.folder, "evaluations.csv"), "a") as handle:
                handle.write(f"{state.global_step},{metrics['eval_mae']:.4f}\n")
        if args.process_index == args.world_size - 1:
            body = nn.utils.parameters_to_vector(model.parameters())
            with open(os.path.join(self.folder, "norms.txt"), "a") as handle:
                handle.write(f"{state.global_step} {body.norm().item():.3f}\n")
            time.sleep(0.25)
