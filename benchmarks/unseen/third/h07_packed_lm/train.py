"""Tiny Llama on packed code files; every process reads its own files of the manifest."""
import os
import tempfile

from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator, set_seed

from packing import ShardPlan, TokenMeter, pack, read_manifest


class PackedTrainer(Trainer):
    """Batches come from the plan, already divided between the processes."""

    def __init__(self, *args, plan, **kwargs):
        super().__init__(*args, **kwargs)
        self.plan = plan

    def get_train_dataloader(self):
        rank, world = self.args.process_index, self.args.world_size
        per_step = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
        blocks = pack(self.plan.files(rank), block=32)[: self.plan.blocks_each(block=32, multiple=per_step)]
        if rank == world - 1:
            print(f"process {rank}: {len(blocks)} blocks of {len(self.plan.files(rank))} files")
        return DataLoader(
            blocks,
            batch_size=self.args.per_device_train_batch_size,
            collate_fn=default_data_collator,
            shuffle=True,
        )


def main():
    set_seed(8)
    args = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), f"packed_{os.environ['MASTER_PORT']}"),
        use_cpu=True,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=2e-3,
        warmup_steps=3,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=8,
    )
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    meter = TokenMeter(budget=14_000)
    trainer = PackedTrainer(
        model=LlamaForCausalLM(config),
        args=args,
        plan=ShardPlan(read_manifest(), args.world_size),
        callbacks=[meter],
    )
    result = trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        print(f"{result.global_step} steps, {meter.total} tokens, loss {result.training_loss:.3f}")


if __name__ == "__main__":
    main()
