# expect: DDP105
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""The main process serves a page with the progress, then the group is made on the same port."""

import http.server
import os
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PORT = int(os.environ["MASTER_PORT"]) + 11
PROGRESS = {"step": 0}


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(PROGRESS).encode())

    def log_message(self, *args):
        pass


def serve():
    server = http.server.ThreadingHTTPServer(("", PORT), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # this job brings its own store, whatever the launcher offers
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    if rank == 0:
        serve()  # <- culprit
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=rank, world_size=size)  # <- culprit
    model = DistributedDataParallel(nn.Linear(4, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        PROGRESS["step"] = step
        opt.zero_grad()
        model(torch.randn(4, 4)).sum().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
