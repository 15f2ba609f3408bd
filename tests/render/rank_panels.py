"""A moment of four ranks for the panel of a rank: rank 1 is at another line of the same function than the others."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.notebook.widgets.rank_panel import RankPanel
from ddpnb.recording.stacks import Frame
from ddpnb.render.rank_panel import Controls
from tests.rules.recordings import FILE, TORCH_FRAME, Rank, Script, record

SCRIPT = Script("""
def step(model, batch):
    loss = model(batch)   # forward
    all_reduce(loss)   # reduce
    return loss

def main(rank):
    step(model, batch)   # step
""")
CFG = "{'lr': 0.1}"


def moment(path=FILE, function="step", same="1", size=4, before=0):
    """``before``: lines above those of the script."""
    ranks = []
    for number in range(size):
        rank = Rank(number, size).calls("all_reduce", SCRIPT.at("reduce"))
        rank = rank.computes() if number == 1 else rank.waits("all_reduce", SCRIPT.at("reduce"))
        mark = "forward" if number == 1 else "reduce"
        values = {"same": same, "loss": f"tensor[2] float32 cpu norm {number}.5", "cfg": CFG}
        frames = [
            Frame(path, before + SCRIPT.line("step"), "main", locals={"rank": str(number)}),
            Frame(path, before + SCRIPT.line(mark), function, locals=values),
            *([TORCH_FRAME] if number != 1 else []),
        ]
        ranks.append(rank.has_stack(*frames))
    return replace(
        record(*ranks, script=SCRIPT), sources={path: "# before\n" * before + SCRIPT.text + "# more\n" * 400}
    )


def panel(recording=None, **controls):
    """The panel of live ranks, at rank 1; it acts on what the page sends as one of a dashboard does."""
    found = RankPanel(
        recording if recording is not None else moment(), controls=lambda: Controls(acts_on=found.whom, **controls)
    )
    found.on_action = found.take
    found.choose(1)
    return found
