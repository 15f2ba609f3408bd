# expect: DDP317
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
import json
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = json.loads("""
{
  "optim": {"lr": 0.02, "steps": 12, "export_every": 6},
  "dist": {"backend": "gloo", "collective_timeout": 3600}
}
""")


class Exporter:
    """Writes the deployable artefact. Quantisation takes a moment."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def export(self, module, step):
        table = {}
        for name, tensor in module.state_dict().items():
            table[name] = (tensor * 127).round().to(torch.int8)
            time.sleep(2.0)  # calibration
        torch.save(table, self.folder / f"export-{step}.pt")


def init_from(cfg):
    limit = timedelta(milliseconds=cfg["collective_timeout"])  # <- culprit
    dist.init_process_group(cfg["backend"], timeout=limit)  # <- culprit


def main():
    init_from(CONFIG["dist"])
    o = CONFIG["optim"]
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=o["lr"])
    exporter = Exporter(tempfile.mkdtemp()) if dist.get_rank() == 0 else None
    for step in range(1, o["steps"] + 1):
        x = torch.randn(8, 6)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % o["export_every"] == 0:
            if exporter:
                exporter.export(model.module, step)
            dist.barrier()
    if exporter:
        print("exported to", exporter.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
