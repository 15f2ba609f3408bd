"""A training of parts that a bisection can leave out: it hangs with two of them together."""

import os

import torch
import torch.distributed as dist

import ddpnb

state = {}


@ddpnb.component
def load():
    state["loaded"] = True


@ddpnb.component
def evaluate():
    if state.pop("loaded", False) and dist.get_rank() == 0:
        dist.all_reduce(torch.ones(3))  # culprit


@ddpnb.component(requires=["evaluate"])
def save_best():
    pass


@ddpnb.component(name="logging")
def log():
    pass


def step():
    dist.all_reduce(torch.ones(2))
    load()
    evaluate()
    save_best()
    log()


def train(steps):
    state.clear()
    for _ in range(steps):
        step()
    dist.barrier()


@ddpnb.component
def dies():
    if dist.get_rank() == 1:
        os._exit(3)
