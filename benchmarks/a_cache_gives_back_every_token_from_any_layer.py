"""A key-value cache gives back every token from any layer, keys alone or values alone, whatever its number format.

    python benchmarks/a_cache_gives_back_every_token_from_any_layer.py [small|part|gpt2|real FOLDER BLOCK]

small: prompts of 40 tokens from TinyStories; stories260K, and a GPT-2 and a Llama of grouped queries with random weights;
candidates are rounded as the cache was (int4 also not). part: one stored head alone, and a cache that begins at an offset nobody
knows. gpt2: a model of GPT-2's size with random weights, 8 tokens. real: 12 tokens of one block of a model in a folder, fp16 and
int8. Without a word: small, part and gpt2. Printed: the share of tokens recovered and processor seconds a token.
"""

from __future__ import annotations

import sys
import time

import torch
from _inversion import ASSETS, prompts_of, random_model, tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from headscan.inversion import Search, exact
from headscan.leaks import Mapped, cache_slice, read_format
from headscan.leaks.exactness import exact_attack
from headscan.leaks.offset import find_offset
from headscan.model import Lens

FORMATS = ("fp16", "bf16", "fp8", "int8", "int4", "int2/8", "int2")
TEXT = "Anna Kowalczyk met Dr. Meyer at 14:30 on Friday."


def grouped() -> Lens:
    """A Llama with two stored heads for eight that ask."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return Lens(LlamaForCausalLM(config), tokenizer(1024), name="Llama, grouped, random")


def small() -> None:
    """Every layer of three small models."""
    stories = Lens.load(str(ASSETS / "models" / "stories260K"))
    models = [(stories, 4), (random_model("gpt2", 1024, 128, 4, 4), 2), (grouped(), 2)]
    print("| model | part | format | tokens recovered, worst layer | s a token |\n|---|---|---|---|---|")
    for lens, count in models:
        ids = prompts_of(lens, count, 40)
        for part in ("keys", "values"):
            for form in FORMATS:
                worst, spent = 1.0, 0.0
                for layer in range(lens.depth):
                    base = cache_slice(lens, [layer], part)
                    found = exact_attack(Mapped(base, read_format(form).each(base.parts), form), ids)
                    worst, spent = min(worst, sum(found.right) / count), spent + found.seconds
                print(f"| {lens.name} | {part} | {form} | {worst:.4f} | {spent / lens.depth:.3f} |", flush=True)
            if lens is stories:
                shares = [plain(lens, layer, part, ids) for layer in range(lens.depth)]
                print(f"| {lens.name} | {part} | int4, candidates not rounded | {min(shares):.4f} | |", flush=True)


def plain(lens: Lens, layer: int, part: str, ids: torch.Tensor) -> float:
    """Share recovered by the nearest candidate as it is, of a cache in int4."""
    base = cache_slice(lens, [layer], part)
    seen = read_format("int4").each(base.parts)(base.run(ids))
    found = exact(base, list(seen), Search(backtracks=0))
    return float((torch.tensor([one.tokens for one in found]) == ids).double().mean())


def part() -> None:
    """One head alone, and an offset that nobody knows."""
    lens = Lens.load(str(ASSETS / "models" / "stories260K"))
    ids = prompts_of(lens, 2, 40)
    print("\n| stories260K | part | format | tokens recovered, worst layer |\n|---|---|---|---|")
    for part_ in ("keys", "values"):
        for form in ("fp16", "int8", "int4"):
            shares = []
            for layer in range(lens.depth):
                base = cache_slice(lens, [layer], part_, [layer % 4])
                found = exact_attack(Mapped(base, read_format(form).each(base.parts), form), ids)
                shares.append(sum(found.right) / len(ids))
            print(f"| one head of four | {part_} | {form} | {min(shares):.4f} |", flush=True)
    form, right, spent = read_format("int8"), [], 0.0
    for layer, offset in ((0, 17), (2, 301), (4, 440)):
        there, base = cache_slice(lens, [layer], "keys", offset=offset), cache_slice(lens, [layer], "keys")
        seen, begun = form.each(base.parts)(there.run(ids[:1])[0]), time.process_time()
        found_ = find_offset(base, seen[0], form=form)
        spent += time.process_time() - begun
        right.append((found_.offset, found_.token) == (offset, int(ids[0, 0])) and found_.told)
    print(f"\nOffset and first token of int8 keys: {sum(right)} of {len(right)} found, {spent / 3:.1f} s each.")


def real(folder: str, block: int) -> None:
    """Twelve tokens of one block of a real model."""
    lens = Lens.load(folder)
    ids = torch.tensor([lens.require_tokenizer()(TEXT, add_special_tokens=False)["input_ids"][:12]])
    print(f"{lens.name}: {len(lens.stacks[0].blocks)} blocks, V = {lens.vocabulary_size:,}\n")
    print("| block | part | format | recovered | verdict | certificate | s a token | candidates |\n|" + 8 * "---|")
    for form in ("fp16", "int8"):
        base = cache_slice(lens, [block], "values")
        found = exact_attack(Mapped(base, read_format(form).each(base.parts), form), ids, budget=4096)
        print(
            f"| {block} | values | {form} | {found.right[0]:.0%} | {found.verdict} | {found.certificate} | {found.seconds:.1f} "
            f"| {found.evaluations:.0f} |", flush=True,
        )  # fmt: skip


def gpt2() -> None:
    """Two layers of a model of GPT-2's size."""
    lens = random_model("gpt2", 50257, 768, 12, 12)
    ids = prompts_of(lens, 1, 8)
    for layer, part, form in ((5, "values", "int8"), (5, "keys", "fp16"), (11, "values", "fp16")):
        base, begun = cache_slice(lens, [layer], part), time.process_time()
        cut = Mapped(base, read_format(form).each(base.parts), form)
        exact_attack(cut, ids[:, :1])  # the fit of the order, once a model
        fitted, found = time.process_time() - begun, exact_attack(cut, ids)
        print(
            f"block {layer}, {part}, {form}: {found.right[0]:.0%}, {found.seconds:.2f} s a token, "
            f"{found.evaluations:.0f} candidates, {fitted:.0f} s for the fit",
            flush=True,
        )


if __name__ == "__main__":
    asked = sys.argv[1:] or ["small", "part", "gpt2"]
    if asked[0] == "real":
        real(asked[1], int(asked[2]))
    else:
        for name in asked:
            {"small": small, "part": part, "gpt2": gpt2}[name]()
