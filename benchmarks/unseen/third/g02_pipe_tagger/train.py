"""Named-entity tagger split over the ranks as a GPipe pipeline."""
import torch
import torch.distributed as dist

from stage import Stage, build_layers

VOCAB, HIDDEN, TAGS, SEQ = 60, 24, 5, 10
MICRO, MICRO_BATCHES, STEPS = 4, 4, 10
PAD = 0


def corpus():
    """Sentences of varying length; rows of tables come without annotation."""
    g = torch.Generator().manual_seed(3)
    total = STEPS * MICRO_BATCHES * MICRO
    tokens = torch.randint(1, VOCAB, (total, SEQ), generator=g)
    length = torch.randint(3, SEQ + 1, (total,), generator=g)
    table = torch.zeros(total, dtype=torch.bool)
    table[104:108] = True
    tokens[torch.arange(SEQ)[None] >= length[:, None]] = PAD
    tags = tokens % TAGS
    tags[tokens == PAD] = -100
    tags[table] = -100
    return tokens, tags


def main():
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = Stage(build_layers(rank, world, VOCAB, HIDDEN, TAGS), rank, world,
                  boundary=(MICRO, SEQ, HIDDEN))
    opt = torch.optim.Adam(stage.layers.parameters(), lr=3e-3)
    tokens, tags = corpus()
    for step in range(STEPS):
        first = step * MICRO_BATCHES * MICRO
        chunks = [slice(first + i * MICRO, first + (i + 1) * MICRO) for i in range(MICRO_BATCHES)]
        opt.zero_grad()
        for i, chunk in enumerate(chunks):
            stage.forward(i, tokens[chunk])
        loss = stage.backward([tags[chunk] for chunk in chunks])
        opt.step()
        if stage.is_last and step % 3 == 0:
            print(f"step {step}: loss {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
