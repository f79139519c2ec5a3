"""
For the engineer who pretrains: watch the shape while you train
===============================================================

A loss curve does not show that the last layer has become a narrow cone. Here a tiny model is
trained for 40 steps in a plain ``transformers.Trainer``, twice: with a head, and with a head whose
bias starts
at the log of the unigram. ``Monitor`` is one line, and measures the held-out windows as training
goes on.
"""

# %%
# The text as windows of bytes
# ----------------------------
import tempfile

import torch
from headscan_lab.tournament.variants import ARMS
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from headscan.model import ByteTokenizer
from headscan.text import Windows
from headscan.training import Monitor, PackedText, collate

ids = next(iter(Windows("stories", ByteTokenizer(), 64 * 512))).ids.reshape(-1, 64)
train = PackedText(ids[:448])
held_out = ids[448:]
print(len(train), "windows to train on,", len(held_out), "held out")


# %%
# Two variants in a Trainer
# -------------------------
# A variant is an objective, terms beside it, and an optimiser. The learner is a module
# whose forward pass returns a loss.
def run(name: str) -> list[tuple[int, float]]:
    """Train a variant; the average cosine of the last block, step by step."""
    set_seed(0)
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256,
            n_embd=48,
            n_layer=2,
            n_head=2,
            n_positions=64,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    arm = ARMS[name]
    learner = arm.learner(model, train.counts(256))
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        max_steps=40,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        use_cpu=True,
        report_to=[],
        remove_unused_columns=False,
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        learner,
        arguments,
        train_dataset=train,
        data_collator=collate,
        optimizers=(arm.optimizer(learner, arguments), None),
        callbacks=arm.callbacks(),
    )
    trainer.remove_callback(PrinterCallback)
    monitor = Monitor(trainer, held_out, every=10, sites="block.1")
    trainer.add_callback(monitor)
    trainer.train()
    return [(moment.step, moment.sites[-1]["average_cosine"]) for moment in monitor.history]


for name in ("ce", "ce+unigram"):
    print(name, *(f"step {step}: {cosine:.2f}" for step, cosine in run(name)), sep="   ")

# %%
# What to make of it
# ------------------
# One seed, 40 steps and a toy: a demonstration, no result. :doc:`/headless-experiments` and
# :doc:`/tournament` compare variants at equal loss, with several seeds. In a run of your own,
# ``Monitor(trainer)`` alone writes these numbers into the Trainer's log, and its alarms warn, save
# a checkpoint, or stop the run: :doc:`/training` says which, and how often they were wrong.
