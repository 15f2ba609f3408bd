import random


def make_lengths(rank, n):
    rnd = random.Random(rank)
    return [rnd.choice([5, 8, 13, 21, 34]) for _ in range(n)]


def plan(lengths, budget, max_len_sum):
    """Groups samples into optimizer steps of about `budget` tokens, each cut into micro-batches."""
    step, used = [], 0
    for i, n in enumerate(lengths):
        step.append(i)
        used += n
        if used >= budget:
            yield cut(step, lengths, max_len_sum)
            step, used = [], 0


def cut(step, lengths, max_len_sum):
    micro, out, used = [], [], 0
    for i in step:
        if micro and used + lengths[i] > max_len_sum:
            out.append(micro)
            micro, used = [], 0
        micro.append(i)
        used += lengths[i]
    out.append(micro)
    return out
