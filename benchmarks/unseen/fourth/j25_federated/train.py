import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from clinic import Clinic
from personal import PersonalModel
from rounds import Round


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(16)
    clinic = Clinic(rank)
    torch.manual_seed(160 + rank)
    model = PersonalModel(n_in=14, n_out=clinic.n_diagnoses)
    trunk = DDP(model.trunk)
    rnd = Round(trunk, model.head)

    for i in range(6):
        rnd.local_fit(clinic)
        loss = rnd.shared_fit(clinic)
        shown = torch.tensor([loss])
        dist.all_reduce(shown)
        if rank == 0:
            print(f"round {i} loss {shown.item() / dist.get_world_size():.4f}", flush=True)
    print(f"rank {rank}: {rnd.local_steps} local steps", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
