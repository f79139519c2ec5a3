"""A key-value cache gives back every token from any layer, keys alone or values alone, whatever its
number format.

    python benchmarks/a_cache_gives_back_every_token_from_any_layer.py [small|part|gpt2|real FOLDER
    BLOCK]

small: two prompts of 40 tokens from TinyStories at every layer of stories260K, and of a GPT-2 and a
Llama of grouped queries with random weights; candidates are rounded as the cache was (int4 also
not). part: one stored head alone. gpt2: two prompts of 8 tokens, a model of GPT-2's size with
random weights. real: 12 tokens of one block of Qwen2.5-Coder-1.5B, values, fp16 and int8 (left out
where it is absent). Without a word: all. Printed: the share of tokens recovered, and processor
seconds a token of one thread. Rows that were measured are kept, so that a stopped series goes on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from _inversion import ASSETS, prompts_of, random_model, tokenizer
from _kept import kept
from _table import show
from transformers import LlamaConfig, LlamaForCausalLM

from headscan.inversion import Search, exact
from headscan.inversion.readout_fit import readouts_of
from headscan.leaks import Mapped, cache_slice, read_format
from headscan.leaks.exact_attack import ExactAttack, exact_attack
from headscan.model import Lens

FORMATS = ("fp16", "bf16", "fp8", "int8", "int4", "int2/8", "int2")
TEXT = "Anna Kowalczyk met Dr. Meyer at 14:30 on Friday."
QWEN = Path(os.environ.get("HEADSCAN_REAL", "~/.cache/headscan/real")).expanduser() / "qwen"
BLOCK = 14
Row = dict[str, Any]


@cache
def stories() -> Lens:
    """Five blocks, four heads, V = 512, trained."""
    return Lens.load(str(ASSETS / "models" / "stories260K"))


@cache
def gpt2_like() -> Lens:
    """Four blocks, four heads, V = 1,024, random weights."""
    return random_model("gpt2", 1024, 128, 4, 4)


@cache
def grouped() -> Lens:
    """A Llama with two stored heads for eight that ask."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return Lens(LlamaForCausalLM(config), tokenizer(1024), name="Llama, grouped queries")


def attacked(
    lens: Lens,
    layer: int,
    part: Any,
    form: str,
    ids: torch.Tensor,
    heads: Any = None,
    **search: Any,
) -> ExactAttack:
    """Exact inversion of a cache in a number format, the candidates rounded as it was."""
    base = cache_slice(lens, [layer], part, heads)
    return exact_attack(Mapped(base, read_format(form).each(base.parts), form), ids, **search)


def every_layer(make: Callable[[], Lens], part: str, form: str) -> Row:
    """Two prompts at each layer, one after another."""
    lens = make()
    ids = prompts_of(lens, 2, 40)
    attacks = []
    for layer in range(lens.depth):
        attacks.append(attacked(lens, layer, part, form, ids))
    return {
        "recovered, worst layer": min(sum(attack.right) / len(ids) for attack in attacks),
        "certified": "all"
        if all(attack.verdict.startswith("recovered") for attack in attacks)
        else "not all",
        "s a token": sum(attack.seconds for attack in attacks) / len(attacks),
    }


def as_they_are(make: Callable[[], Lens], part: str) -> Row:
    """Share recovered by the nearest candidate that was not rounded, of a cache in int4."""
    lens = make()
    ids = prompts_of(lens, 2, 40)
    accuracies = []
    begun = time.process_time()
    for layer in range(lens.depth):
        base = cache_slice(lens, [layer], part)  # type: ignore[arg-type]
        stored_states = read_format("int4").each(base.parts)(base.run(ids))
        tokens = [
            inversion.tokens for inversion in exact(base, list(stored_states), Search(backtracks=0))
        ]
        accuracies.append(float((torch.tensor(tokens) == ids).double().mean()))
    spent = (time.process_time() - begun) / lens.depth / ids.numel()
    return {"recovered, worst layer": min(accuracies), "certified": "none", "s a token": spent}


def small() -> None:
    """Every layer of three small models."""
    rows = []
    models = {"stories260K": stories, "GPT-2-like": gpt2_like, "Llama, grouped queries": grouped}
    for name, make in models.items():
        for part in ("keys", "values"):
            for form in FORMATS:
                about = {"model": name, "part": part, "format": form}
                rows.append(
                    about | kept(f"{name} {part} {form}", partial(every_layer, make, part, form))
                )
            about = {"model": name, "part": part, "format": "int4, candidates not rounded"}
            rows.append(
                about | kept(f"{name} {part} as they are", partial(as_they_are, make, part))
            )
    show(rows)


def one_head(part: str, form: str) -> Row:
    """One stored head of four, another at each layer."""
    lens = stories()
    ids = prompts_of(lens, 2, 40)
    attacks = [attacked(lens, layer, part, form, ids, [layer % 4]) for layer in range(lens.depth)]
    return {
        "recovered, worst layer": min(sum(attack.right) / len(ids) for attack in attacks),
        "s a token": sum(attack.seconds for attack in attacks) / len(attacks),
    }


def part() -> None:
    """One head alone."""
    print("\nstories260K, one stored head of four:\n")
    show(
        [
            {"part": cache_part, "format": form}
            | kept(f"head {cache_part} {form}", partial(one_head, cache_part, form))
            for cache_part in ("keys", "values")
            for form in ("fp16", "int8", "int4")
        ]
    )


@cache
def large() -> Lens:
    """GPT-2's size, random weights."""
    return random_model("gpt2", 50257, 768, 12, 12)


def of_gpt2(layer: int, part: str, form: str) -> Row:
    """Two prompts of 8 tokens; the order of candidates is fitted once a slice, apart."""
    lens = large()
    begun = time.process_time()
    ids = prompts_of(lens, 2, 8)
    attacked(lens, layer, part, form, ids[:1, :1])
    fitted = time.process_time() - begun
    attack = attacked(lens, layer, part, form, ids)
    return {
        "recovered": sum(attack.right) / 2,
        "s a token": attack.seconds,
        "candidates a token": attack.evaluations,
        "s for the fit": fitted,
    }


def gpt2() -> None:
    """Three layers of a model of GPT-2's size."""
    print("\nGPT-2's size (12 blocks, d = 768, V = 50,257), random weights:\n")
    cases = (
        (5, "values", "int8"),
        (5, "keys", "fp16"),
        (11, "values", "fp16"),
        (11, "keys", "int8"),
    )
    show(
        [
            {"block": layer, "part": cache_part, "format": form}
            | kept(f"gpt2 {layer} {cache_part} {form}", partial(of_gpt2, layer, cache_part, form))
            for layer, cache_part, form in cases
        ]
    )


def of_real(folder: Path, block: int, forms: Sequence[str]) -> list[Row]:
    """Twelve tokens, the values of one block in several formats."""
    torch.set_num_threads(os.cpu_count() or 1)
    lens = Lens.load(str(folder))
    rows = []
    ids = torch.tensor([lens.require_tokenizer()(TEXT, add_special_tokens=False)["input_ids"][:12]])
    base = cache_slice(lens, [block], "values")
    cuts = [Mapped(base, read_format(form).each(base.parts), form) for form in forms]
    for form, cut in zip(forms, cuts, strict=True):
        begun = time.process_time()
        readouts_of(cut)
        fitted = time.process_time() - begun
        attack = exact_attack(cut, ids, budget=4096)
        rows.append(
            {
                "block": block,
                "part": "values",
                "format": form,
                "recovered": attack.right[0],
                "verdict": attack.verdict,
                "certificate": attack.certificate,
                "s a token": attack.seconds,
                "candidates a token": attack.evaluations,
                "s for the fit": fitted,
            }
        )
    return rows


def real(folder: Path = QWEN, block: int = BLOCK) -> None:
    """One block of a real model."""
    if not folder.is_dir():
        print(f"\n{folder} is absent: no real model.")
        return
    print(f"\n{folder.name}, 12 tokens, processor seconds of {os.cpu_count()} threads:\n")
    show(
        kept(
            f"real {folder.name} {block}",
            lambda: {"rows": of_real(folder, block, ("fp16", "int8"))},
        )["rows"]
    )


def main() -> None:
    """Print the tables that the command line names."""
    torch.set_num_threads(1)
    arguments = sys.argv[1:] or ["small", "part", "gpt2", "real"]
    if arguments[0] == "real" and len(arguments) == 3:
        real(Path(arguments[1]), int(arguments[2]))
    else:
        for name in arguments:
            {"small": small, "part": part, "gpt2": gpt2, "real": real}[name]()


if __name__ == "__main__":
    main()
