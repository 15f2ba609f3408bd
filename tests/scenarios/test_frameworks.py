"""Frameworks and libraries behave on a rank as in a terminal. Lightning and others run with ``make matrix``."""

from __future__ import annotations

import json
import textwrap

import pytest

MATRIX = ("lightning", "accelerate", "transformers")  # installed for make matrix alone

PROGRAMS = {
    "tqdm": """
        from tqdm.auto import tqdm
        from tqdm import autonotebook
        seen = [tqdm.__mro__[1].__module__, autonotebook.tqdm.__module__]
    """,
    "rich": """
        from rich.console import Console
        seen = [Console().is_jupyter, Console().is_terminal]
    """,
    "matplotlib": """
        import matplotlib.pyplot as plt
        plt.figure()
        seen = [plt.get_backend().lower(), plt.isinteractive()]
    """,
    "click": """
        import click
        command = click.Command("train", callback=lambda steps: steps, params=[click.Option(["--steps"], type=int)])
        seen = [command.main(["--steps", "3"], standalone_mode=False)]
    """,
    "lightning": """
        import torch, lightning
        class Lit(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(8, 1)
            def training_step(self, batch, _):
                return self.net(batch).square().mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)
        trainer = lightning.Trainer(accelerator="cpu", strategy="ddp", devices=4, max_epochs=1, logger=False,
                                    enable_checkpointing=False)
        trainer.fit(Lit(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8))
        fabric = lightning.Fabric(accelerator="cpu", strategy="ddp", devices=4)
        fabric.launch()
        seen = [trainer.world_size, trainer.global_step, fabric.world_size]
    """,
    "accelerate": """
        import torch
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        model = accelerator.prepare(torch.nn.Linear(8, 1))
        accelerator.backward(model(torch.ones(2, 8)).sum())
        seen = [accelerator.num_processes, type(model).__name__]
    """,
    "transformers": """
        import tempfile, torch
        from transformers import Trainer, TrainingArguments
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(8, 1)
            def forward(self, x=None, labels=None):
                return {"loss": (self.net(x) - labels).square().mean()}
        data = [{"x": torch.ones(8), "labels": torch.zeros(1)}] * 64
        chosen = TrainingArguments(tempfile.mkdtemp(), use_cpu=True, num_train_epochs=1, report_to=[],
                                   save_strategy="no")
        trainer = Trainer(Net(), chosen, train_dataset=data)
        trainer.train()
        seen = [chosen.world_size, trainer.state.global_step, trainer.callback_handler.callbacks[1].__class__.__name__]
    """,
}
EXPECTED = {
    "tqdm": ["tqdm.std", "tqdm.std"],
    "rich": [False, False],
    "matplotlib": ["agg", False],
    "click": [3],
    "lightning": [4, 2, 4],
    "accelerate": [4, "DistributedDataParallel"],
    "transformers": [4, 2, "ProgressCallback"],
}
WRITE = "\nimport json, sys, os\njson.dump(seen, open(sys.argv[1] + os.environ['RANK'], 'w'))\n"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n,
            marks=pytest.mark.matrix
            if n in MATRIX
            else [pytest.mark.world, *([] if n == "tqdm" else [pytest.mark.full])],
        )
        for n in PROGRAMS
    ],
)
@pytest.mark.parametrize(
    "imported_before",
    [pytest.param(False, marks=pytest.mark.full, id="fresh"), pytest.param(True, id="imported by %px")],
)
def test_a_script_is_run_as_in_a_terminal_and_a_second_time(world, tmp_path, name, imported_before):
    if imported_before:
        also = {"tqdm": "import tqdm.auto", "accelerate": "import accelerate.state"}
        for rank in range(4):
            world._ranks.processes.call(rank, exec, also.get(name, f"import {name}")).get(timeout=60)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(PROGRAMS[name]) + WRITE)
    for turn in "ab":
        run = world.run(script, tmp_path / f"seen{turn}", stream=None).wait(120)
        assert run.outcome == "ok", f"{run.diagnosis}\n{run.log(0)}"
        assert "a hook failed" not in run.log(0)
        for rank in range(4):
            assert json.loads((tmp_path / f"seen{turn}{rank}").read_text()) == EXPECTED[name]


@pytest.mark.world
def test_a_cell_gets_a_plain_progress_bar(world):
    cell = "from tqdm.auto import tqdm\ntqdm.__mro__[1].__module__"
    run = world.execute(cell, stream=None).wait(60)
    assert run.outcome == "ok" and run.log(0).strip() == "'tqdm.std'", run.log(0)


@pytest.mark.world
def test_warnings_are_filtered_as_in_a_plain_process(world, tmp_path):
    (tmp_path / "quiet.py").write_text("import warnings\nwarnings.simplefilter('ignore')\n")
    (tmp_path / "warns.py").write_text(
        "import sys, warnings\nassert 'IPython' not in str(warnings.filters)\nassert __annotations__ == {}\n"
        "warnings.warn('of the script', DeprecationWarning)\n"
    )
    assert world.run(tmp_path / "quiet.py", stream=None).wait(60).outcome == "ok"
    run = world.run(tmp_path / "warns.py", stream=None).wait(60)
    assert run.outcome == "ok" and "DeprecationWarning: of the script" in run.log(0), run.log(0)
