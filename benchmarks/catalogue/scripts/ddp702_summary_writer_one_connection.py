# expect: DDP702
# also: DDP313
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""Scalars go to a collector that takes one writer at a time; each rank opens a writer."""

import json
import socket
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Collector(threading.Thread):
    """Greets a writer, takes its lines until it closes, then turns to the next one."""

    def __init__(self):
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = self.server.getsockname()[1]
        self.scalars = []

    def run(self):
        while True:
            connection, _ = self.server.accept()
            with connection, connection.makefile("rw") as stream:
                stream.write("ready\n")
                stream.flush()
                self.scalars.extend(json.loads(line) for line in stream)


class SummaryWriter:
    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.stream = self.connection.makefile("rw")
        if self.stream.readline() != "ready\n":  # <- culprit
            raise ConnectionError("no collector")

    def add_scalar(self, tag, value, step):
        self.stream.write(json.dumps([tag, value, step]) + "\n")
        self.stream.flush()

    def close(self):
        self.stream.close()
        self.connection.close()


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        port = [None]
        if self.rank == 0:
            collector = Collector()
            collector.start()
            self.writer = SummaryWriter(collector.port)
            port = [collector.port]
        dist.broadcast_object_list(port, src=0)
        if self.rank != 0:  # <- culprit
            self.writer = SummaryWriter(port[0])  # <- culprit
        self.model = DDP(nn.Linear(8, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def fit(self, steps=8):
        g = torch.Generator().manual_seed(self.rank)
        for step in range(steps):
            x = torch.randn(5, 8, generator=g)
            loss = nn.functional.mse_loss(self.model(x), x.roll(1, 1))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.writer.add_scalar("loss", loss.item(), step)
        self.writer.close()


dist.init_process_group("gloo")
Trainer().fit()  # <- culprit
dist.destroy_process_group()
