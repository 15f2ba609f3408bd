"""DDP108, 303-305, 307: arguments that cannot be right whatever the other ranks give."""

from __future__ import annotations

import re

from ddpnb.explanations.messages.explained import Explained, Raised

# The text, the code, what is wrong, what to do: arguments that do not fit by themselves.
_ARGUMENTS: tuple[tuple[re.Pattern[str], str, str, str], ...] = (
    (
        re.compile(r"invalid output tensor list at index \d{1,9} \(expected length (\d{1,9}), got (\d{1,9})\)"),
        "DDP305",
        "The list for the results has room for {1} of the group's {0} tensors.",
        "One tensor per rank: [torch.empty_like(x) for _ in range(dist.get_world_size())].",
    ),
    (
        re.compile(r"invalid tensor size at index \d{1,9} \(expected \(([^)]{0,200})\), got \(([^)]{0,200})\)\)"),
        "DDP303",
        "A tensor of the call has the size [{1}], where [{0}] is wanted.",
        "Tensors of one gather have one size on every rank: pad them, or use all_gather_object.",
    ),
    (
        re.compile(
            r"outputShape\[0\] \* worldSize == inputShape\[0\] \((\d{1,19}) vs\. (\d{1,19})\)"
            r"|(?:output tensor size must be equal to world_size times input tensor size|input tensor must be the same size as "
            r"output size times world size|does not divide equally across group size)"
        ),
        "DDP303",
        "The tensor cannot be shared out evenly over the ranks of the group.",
        "Its first dimension is the number of ranks times that of one part: pad it.",
    ),
    (
        re.compile(r"Split sizes doesn't match total dim 0 size|Number of tensor splits not equal to group size"),
        "DDP305",
        "The split sizes do not fit: there is one per rank, and together they are the tensor's first dimension.",
        "Exchange the sizes first (all_to_all_single of the counts), then the data.",
    ),
    (
        re.compile(r"Invalid usage of tensors with different dtypes\s?Found (\S{1,40})\s{1,3}and\s{1,3}(\S{1,40})"),
        "DDP304",
        "One call was given tensors of {0} and of {1}.",
        "Convert before the call: tensor.to(torch.float32).",
    ),
    (
        re.compile(r"Argument ``(\w{1,30})`` must (NOT )?be specified on (non-)?(destination|source) ranks?"),
        "DDP305",
        "{0} is for the root alone: a list there, None on the other ranks.",
        "Give it under the same condition as the root: gather_list=buffers if dist.get_rank() == dst else None.",
    ),
    (
        re.compile(r"invalid root rank: (\d{1,9})|Global rank (\d{1,9}) is not part of group"),
        "DDP305",
        "The root of the call, rank {0}, is no member of the group.",
        "src and dst are numbers of the whole world: dist.get_global_rank(group, 0) is the first member of a group.",
    ),
    (
        re.compile(
            r"Invalid (?:destination|source) rank: (?:destination|source) rank should not be the same as the rank"
        ),
        "DDP307",
        "It sends to itself, or receives from itself.",
        "Copy the tensor instead; in a ring take the neighbours (rank + 1) % world_size and (rank - 1) % world_size.",
    ),
    (
        re.compile(
            r"Rank (\d{1,9}) is out of range\. Valid ranks are|group's (?:rank|world size) should be (?:within|less or equal to) "
            r"the world_?\s?size set by|ranks list must not contain duplicate entries"
        ),
        "DDP108",
        "new_group was given a list of ranks that this world does not have, or has one twice.",
        "Take the numbers from range(dist.get_world_size()), each once, and the same list on every rank.",
    ),
    (
        re.compile(
            r"_verify_params_across_processes\(\): incompatible function arguments(?=[\s\S]{0,2000}Invoked with: -100,)"
        ),
        "DDP108",
        "The model is wrapped with a group to which this rank does not belong.",
        "Wrap on the members alone: DistributedDataParallel(model, process_group=group) if dist.get_rank(group) >= 0.",
    ),
)


def arguments(raised: Raised) -> Explained | None:
    for pattern, code, summary, remedy in _ARGUMENTS:
        if found := pattern.search(raised.text):
            values = [value for value in found.groups() if value] or [""]
            return Explained(code, summary.format(*values, ""), (), remedy)
    return None


RULES = (arguments,)
