from accelerate import Accelerator
from accelerate.utils import set_seed

from trainer import DiffusionTrainer


def main(epochs=2):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    set_seed(0)
    trainer = DiffusionTrainer(accelerator)
    for epoch in range(epochs):
        done = trainer.run_epoch(epoch)
        accelerator.print(f"epoch {epoch}: {done} micro batches")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
