"""A small transformer on TinyStories nears the entropy bound, and its geometry turns towards the
predicted one

Contexts of `--order` tokens of a 512-token vocabulary, counted; the geometry predicted from the
counts alone; a Llama trained on the same contexts and held against the prediction at checkpoints.
Prints a table, and writes the page with `--out`.

    python benchmarks/a_transformer_on_tinystories_turns_towards_the_prediction.py TEXT TOKENIZER
    [--order 2] [--steps 3000]
"""

from __future__ import annotations

import argparse
import time

import torch
from headscan_lab.theory.transformer import train_transformer

import headscan
from headscan.model.tokenizer import load_tokenizer
from headscan.ntp import SoftLabels
from headscan.text.counts import count_tokens
from headscan.text.source import Counting, Reading
from headscan.text.token_store import store_text

COLUMNS = ("direction", "SC2_words", "SC2_contexts", "SC3", "SC4", "growth")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("tokenizer")
    parser.add_argument("--documents", default="<|endoftext|>")
    parser.add_argument("--order", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=None)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(options.tokenizer)
    reading = Reading(documents=options.documents, max_tokens=options.max_tokens)
    counts = count_tokens(
        store_text(options.text, tokenizer, reading)[0], Counting(order=options.order)
    )
    labels = SoftLabels.of(counts.matrix())
    checkpoints = sorted({0, *(options.steps * k // 1000 for k in (3, 10, 30, 100, 300))})
    started = time.process_time()
    trained = train_transformer(
        counts.contexts,
        labels,
        width=options.width,
        layers=options.layers,
        steps=options.steps,
        batch=options.batch,
        checkpoints=checkpoints,
    )
    seconds = time.process_time() - started
    # The transformer saw contexts of its own, without a start token: it is read as it was trained.
    tokenizer.bos_token = None
    result = headscan.ntp.run(
        options.text,
        order=options.order,
        tokenizer=tokenizer,
        model=[lens for _, lens in trained],
        reading="alone",
        out=options.out,
        **reading.part(Reading),
    )
    solution = result.solution
    assert solution is not None
    print(
        f"{result.tokens:,} positions, {result.contexts:,} contexts, {result.supports:,} supports, "
        f"H = {result.entropy_bound:.4f} nats; L^mm of rank {solution.rank}, certified to "
        f"{solution.gap:.1e}; "
        f"trained in {seconds:.0f} CPU seconds.\n"
    )
    print("| step | CE − H | equal supports, after | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 3) + "|")
    for (step, _), model in zip(trained, result.comparisons, strict=True):
        m = model.metrics
        same = m.SC1.after.same_cosine if m.SC1.after is not None else float("nan")
        values = " | ".join(f"{getattr(m, name):.3f}" for name in COLUMNS)
        print(f"| {step} | {m.SC6:.4f} | {same:.3f} | {values} |")


if __name__ == "__main__":
    main()
