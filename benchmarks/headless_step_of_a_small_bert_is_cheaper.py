"""One whole training step (forward, loss, backward, AdamW) of a BERT-small-like model at V = 50,000.

The paper reports 2.0 to 5.2 times for V = 20,000 to 200,000 (one RTX 8000, batch 64 x 128) against a head that projects
every position. Measured here beside it: the same, and the fair baseline that projects only the masked positions.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from _losses import machine
from transformers import BertConfig, BertModel
from transformers.utils import logging

from headscan.training import ce_loss, cwt_loss, full_ce_loss, gather_rows


def losses(form: str, hidden, table, labels):
    if form == "vanilla, every position":
        return full_ce_loss(hidden, table, labels)
    rows, targets = gather_rows(hidden, labels)
    if form == "vanilla, gathered":
        return ce_loss(rows, table, targets)
    return cwt_loss(rows, table, targets, sparse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    torch.manual_seed(0)
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    config = BertConfig(
        vocab_size=options.vocabulary,
        hidden_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=2048,
    )
    model = BertModel(config, add_pooling_layer=False).to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    law = 1 / (torch.arange(1, options.vocabulary + 1).double() + 2.7) ** 1.05
    ids = torch.multinomial(law, options.batch * options.context, replacement=True)
    ids = ids.view(options.batch, options.context).to(device)
    labels = ids.masked_fill(torch.rand(ids.shape, device=device) >= 0.15, -100)
    forms = ["headless, unique CWT", "vanilla, gathered", "vanilla, every position"]
    times: dict[str, list[float]] = {form: [] for form in forms}
    for turn in range(options.repeats + 1):
        for form in forms:
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            optimizer.zero_grad()
            hidden = model(ids).last_hidden_state
            losses(form, hidden, model.get_input_embeddings().weight, labels).backward()
            optimizer.step()
            if device == "cuda":
                torch.cuda.synchronize()
            if turn:
                times[form].append(time.perf_counter() - start)
    seconds = {form: statistics.median(each) for form, each in times.items()}
    print(f"V = {options.vocabulary:,}, batch {options.batch} x {options.context}; {machine()}\n")
    print("| step | ms | headless is faster by |\n|---|---|---|")
    for form in forms:
        print(f"| {form} | {1000 * seconds[form]:.0f} | {seconds[form] / seconds[forms[0]]:.2f} x |")


if __name__ == "__main__":
    main()
