import json
import shutil
import tempfile
from pathlib import Path

from accelerate.utils import ProjectConfiguration


def project(name="vla"):
    root = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    return ProjectConfiguration(project_dir=str(root), automatic_checkpoint_naming=True, total_limit=2)


class CheckpointCallback:
    def __init__(self, accelerator, every=6):
        self.accelerator = accelerator
        self.every = every
        self.summary = []

        @accelerator.on_last_process
        def write(step, loss):
            accelerator.save_state()
            self.summary.append({"step": step, "loss": round(loss, 5)})
            out = Path(accelerator.project_dir) / "summary.jsonl"
            out.write_text("\n".join(map(json.dumps, self.summary)))

        self._write = write

    def __call__(self, step, loss):
        if step and step % self.every == 0:
            self._write(step, loss)

    def close(self):
        shutil.rmtree(self.accelerator.project_dir, ignore_errors=True)
