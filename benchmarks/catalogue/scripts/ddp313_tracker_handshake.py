# expect: DDP313
# also: DDP702
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""The main process announces the run to a tracking server, which accepts and says nothing."""

import socket
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SilentServer:
    """Stands for a server that is overloaded."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.connections = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            self.connections.append(self.socket.accept()[0])

    @property
    def address(self):
        return self.socket.getsockname()


class Tracker:
    def __init__(self, address):
        self.connection = socket.create_connection(address)

    def start(self, name):
        self.connection.sendall(f"START {name}\n".encode())
        answer = self.connection.recv(64)  # <- culprit
        return answer.decode().split()[1]

    def log(self, step, value):
        self.connection.sendall(f"{step} {value}\n".encode())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(4, 1))
    tracker = None
    if rank == 0:
        server = SilentServer()
        tracker = Tracker(server.address)
        print("run", tracker.start("baseline"))  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        loss = model(torch.randn(6, 4)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if tracker:
            tracker.log(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
