# expect: DDP507
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
"""Samples come from an object store; one object of the second rank's shard is never delivered."""

import socketserver
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Store(socketserver.BaseRequestHandler):
    """An object store in miniature: 'GET number' gives twelve numbers back."""

    def handle(self):
        number = int(self.request.recv(64).split()[1])
        if number == 1013:
            threading.Event().wait(120)
            return
        values = torch.randn(12, generator=torch.Generator().manual_seed(number))
        self.request.sendall(values.numpy().tobytes())


def start_store():
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address


class Objects(Dataset):
    def __init__(self, address, rank):
        self.address = address
        self.numbers = [1000 * rank + i for i in range(30)]

    def __len__(self):
        return len(self.numbers)

    def get(self, number):
        import socket

        with socket.create_connection(self.address) as connection:
            connection.sendall(f"GET {number}\n".encode())
            data = b""
            while len(data) < 48:
                data += connection.recv(48)  # <- culprit
        return torch.frombuffer(bytearray(data), dtype=torch.float32)

    def __getitem__(self, index):
        values = self.get(self.numbers[index])  # <- culprit
        return values[:-1], values[-1:]


dist.init_process_group("gloo")
rank = dist.get_rank()
loader = DataLoader(Objects(start_store(), rank), batch_size=5, num_workers=1)  # <- culprit
model = DDP(nn.Linear(11, 1))
optimizer = torch.optim.Adam(model.parameters())
for step, (x, y) in enumerate(loader):  # <- culprit
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.3f}", flush=True)
dist.destroy_process_group()
