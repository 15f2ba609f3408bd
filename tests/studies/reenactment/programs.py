"""Recordings of kinds of hangs, written by hand, and the scripts made from them."""

from ddpnb.recording.calls import CallState
from ddpnb.studies.reenactment.planning import plan_of
from ddpnb.studies.reenactment.script import script_of
from tests.rules.recordings import Script, group, line, recorded

LOOP = Script(
    """
    for step in range(batches):
        all_reduce(x)   # reduce
        barrier()   # barrier
    """
)


def uneven(me):
    for _ in range(8):
        me.calls("all_reduce", LOOP.at("reduce"))
    return me.finishes() if me.rank == 1 else me.waits("all_reduce", LOOP.at("reduce"))


def healthy(me):
    for _ in range(5):
        me.calls("all_reduce", LOOP.at("reduce"))
    return me.finishes()


def skipped(me):
    for _ in range(20):
        me.calls("all_reduce", LOOP.at("reduce")).calls("barrier", LOOP.at("barrier"))
    return me.waits("barrier", LOOP.at("barrier")) if me.rank == 1 else me.waits("all_reduce", LOOP.at("reduce"))


def never_called(me):
    me.calls("broadcast", line(3), root=2)
    return me.finishes() if me.rank == 1 else me.waits("all_reduce", line(4), shape=(1024, 1024))


def other_operation(me):
    me.calls("all_reduce", line(3))
    if me.rank == 2:
        return me.waits("broadcast", line(7), root=0)
    return me.waits("all_reduce", line(9))


def other_operation_of_two(me):
    return me.waits("broadcast", line(7), root=0) if me.rank else me.waits("all_reduce", line(9))


def other_shape(me):
    return me.waits("all_reduce", line(3), shape=(5_000_000 if me.rank == 3 else 4_000_000,))


def other_dtype(me):
    return me.waits("all_gather", line(3), dtype="int16" if me.rank == 0 else "float8_e4m3fn")


def crossed(me):
    pair = [group(0, 1), group(0, 1, ordinal=1)]
    if me.rank > 1:
        return me.finishes()
    first = pair[me.rank]
    return me.waits("all_reduce", line(3 + me.rank), group=first)


def receives_first(me):
    peer = me.rank ^ 1
    return me.receives(peer, line(5), tag=3, state=CallState.WAITING)


def several_in_flight(me):
    for number in range(2 if me.rank == 3 else 3):
        me.issues("all_reduce", line(3 + number), shape=(8 + number,))
    if me.rank == 3:
        return me.finishes()
    return me.waits("barrier", line(9))


def elsewhere(me):
    me.calls("all_reduce", line(3))
    return me.idles(60, line(8)) if me.rank == 1 else me.waits("all_reduce", line(4), idle=60)


def raised(me):
    me.calls("all_reduce", line(3))
    return me.raises("ValueError", "bad 'record'\n\u2028", line(8)) if me.rank == 0 else me.waits("all_reduce", line(4))


def died(me):
    me.calls("all_reduce", line(3))
    return me.dies(-9) if me.rank == 2 else me.waits("all_reduce", line(4))


def never_joined(me):
    return me.absent().finishes() if me.rank == 3 else me.starts(line(2))


def tensor_and_data_parallel(me, world=512, per_node=8, culprit=17):
    """Rank 17 leaves out a call of its tensor-parallel group; the rest of the job follows."""
    node, place = divmod(me.rank, per_node)
    tensor = group(*range(node * per_node, (node + 1) * per_node), label="mesh_tp")
    data = group(*range(place, world, per_node), label="mesh_dp")
    for _ in range(5):
        me.calls("all_reduce", line(10), group=tensor, shape=(4096, 4096), dtype="bfloat16")
        me.calls("all_reduce", line(20), group=data, shape=(1_000_000,))
    if me.rank == culprit:
        return me.finishes()
    if node == culprit // per_node:
        return me.waits("all_reduce", line(10), group=tensor, shape=(4096, 4096), dtype="bfloat16")
    me.calls("all_reduce", line(10), group=tensor, shape=(4096, 4096), dtype="bfloat16")
    return me.waits("all_reduce", line(20), group=data, shape=(1_000_000,))


KINDS = {
    one.__name__: one
    for one in (
        uneven,
        skipped,
        never_called,
        other_operation,
        other_shape,
        other_dtype,
        crossed,
        receives_first,
        several_in_flight,
        elsewhere,
        raised,
        died,
        never_joined,
    )
}


def recording_of(kind, world=4):
    return recorded(kind, world, LOOP)


def script(kind, world=4, **more):
    """The script of a kind of hang."""
    return script_of(plan_of(recording_of(kind, world)), **more)


def body(text):
    """The lines of ``main``, without comments."""
    lines = text.split("def main():\n")[1].split("\n\n")[0].splitlines()
    return [line.split("  # ")[0].removeprefix("    ") for line in lines]
