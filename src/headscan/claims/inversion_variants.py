"""Experiments on single turns of the source's method: other targets, losses, lengths, hidden outputs, one at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from headscan.claims.stand_ins import PROMPTS, STEPS, TOKENS, Numbers, lens_of, prompts, right, searched
from headscan.inversion import Descent, JointSearch, descend, exact, joint, preset
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel

__all__ = ["VARIANTS"]


def _only(lens: Lens, ids: Tensor, extra: int = 0) -> Tensor:
    """The vocabulary of the prompts, bool [V], and so many random tokens besides."""
    allowed = torch.zeros(lens.vocabulary_size, dtype=torch.bool)
    allowed[ids.unique()] = True
    allowed[torch.randperm(len(allowed), generator=torch.Generator().manual_seed(0))[:extra]] = True
    return allowed


def targets(seed: int) -> Numbers:
    """T4: direct inversion of a scaled one-hot vector's output and of the pseudo-inverse's, W^+ W being one on rows."""
    lens = lens_of("gpt2")
    ready = Slice().on(lens)
    ids = prompts(lens, seed)
    found: Numbers = {}
    for name, scale in (("one_hot", 10.0), ("pseudo_inverse", 1.0)):
        target = ready.run(inputs_embeds=scale * ready.embed(ids))
        for start, setting in (
            ("noise", preset("seed-direct", steps=STEPS)),
            ("zero", Descent(method="direct", init="zeros", steps=STEPS, rate=0.02)),
        ):
            found[f"{name}_{start}"] = right(descend(ready, target, TOKENS, setting), ids)
    return found


def restricted_direct(seed: int) -> Numbers:
    """T5, T6: direct inversion with twenty tokens allowed, as published and with both faults taken out; L2; middle block."""
    lens = lens_of("trained")
    ids = prompts(lens, seed)
    found: Numbers = {}
    ready = Slice().on(lens)
    target = ready.run(ids)
    allowed = _only(lens, ids, 20)
    zero = Descent(method="direct", init="zeros", steps=STEPS, rate=0.02)
    found["noise_zero_mask"] = right(
        descend(ready, target, TOKENS, preset("seed-direct", steps=STEPS), allowed=allowed), ids
    )
    found["zero_inf_mask"] = right(descend(ready, target, TOKENS, zero, allowed=allowed), ids)
    found["exact"] = searched("trained", seed)
    middle = Slice(sites=(f"block.{(lens.depth - 1) // 2}",)).on(lens)
    found["middle_own_words"] = right(
        descend(middle, middle.run(ids), TOKENS, preset("seed", steps=STEPS, mask="-inf"), allowed=_only(lens, ids)),
        ids,
    )
    found["cosine_own_words"] = right(
        descend(
            ready, target, TOKENS, preset("seed", steps=STEPS, loss="cosine", rate=200.0, mask="-inf"),
            allowed=_only(lens, ids, 13),
        ),
        ids,
    )  # fmt: skip
    random = lens_of("gpt2")
    ready, ids = Slice().on(random), prompts(random, seed)
    target = ready.run(ids)
    setting = preset("seed-direct", steps=STEPS, loss="l2")
    found["l2_noise"] = right(descend(ready, target, TOKENS, setting), ids)
    zero = Descent(method="direct", init="zeros", steps=STEPS, rate=0.02, loss="l2")
    found["l2_zero"] = right(descend(ready, target, TOKENS, zero), ids)
    found["l2_exact"] = searched("gpt2", seed)
    return found


def wrong_tokens(seed: int) -> Numbers:
    """T5, T15: how far wrong answers are those of the random start: trained and untrained, and single-token prompts."""
    lens = lens_of("trained")
    ids = prompts(lens, seed)
    setting = preset("seed-direct", steps=20)
    answers = []
    for cut in (Slice(), Slice(weights="fresh:3")):
        ready = cut.on(lens)
        answers.append(descend(ready, ready.run(ids), TOKENS, setting).tokens)
    ready = Slice().on(lens)
    words = prompts(lens, seed, 4, 1)
    setting = preset("seed-direct", steps=STEPS, loss="cosine", rate=2000.0)
    single = descend(ready, ready.run(words), 1, setting).tokens[:, 0].tolist()
    return {
        "same_in_trained_and_untrained": right(answers[0], answers[1]),
        "commonest_answer_to_four_words": Counter(single).most_common(1)[0][1] / len(single),
    }


def direct_cosine(seed: int) -> Numbers:
    """T14: direct inversion by cosine and by L1, prompts of 2, 3 and 6 tokens."""
    found: Numbers = {}
    lens = lens_of("trained")
    ready = Slice().on(lens)
    for length in (2, 3, TOKENS):
        ids = prompts(lens, seed, 8, length)
        target = ready.run(ids)
        cosine = preset("seed-direct", steps=STEPS, loss="cosine", rate=2000.0)
        found[f"cosine_{length}"] = right(descend(ready, target, length, cosine), ids)
        found[f"l1_{length}"] = right(descend(ready, target, length, preset("seed-direct", steps=STEPS)), ids)
        found[f"exact_{length}"] = right(torch.tensor([one.tokens for one in exact(ready, list(target))]), ids)
    return found


def near_but_wrong(seed: int) -> Numbers:
    """T7: how near the output comes, by the source's own measure, and how many tokens are right then."""
    lens = lens_of("trained")
    ready = Slice().on(lens)
    ids = prompts(lens, seed)
    target = ready.run(ids)
    found = descend(ready, target, TOKENS, preset("seed", steps=800))
    generator = torch.Generator().manual_seed(seed)
    moved = ready.embed(ids) + 0.05 * torch.randn(*ids.shape, ready.vectors.shape[1], generator=generator)
    shift = (ready.run(inputs_embeds=moved) - target).abs().flatten(1).sum(1)
    return {
        "distance_by_shift": round(float((found.loss / shift).mean()), 3),
        "tokens": right(found, ids),
        "exact": searched("trained", seed),
    }


def swapped_direct(seed: int) -> Numbers:
    """T5, T12: direct inversion where the slice runs with an untrained embedding table."""
    lens = lens_of("trained")
    ready = Slice(embedding="random:5").on(lens)
    ids = prompts(lens, seed)
    target = ready.run(ids)
    zero = Descent(method="direct", init="zeros", steps=STEPS, rate=0.02)
    return {
        "noise": right(descend(ready, target, TOKENS, preset("seed-direct", steps=STEPS)), ids),
        "zero": right(descend(ready, target, TOKENS, zero), ids),
        "exact": searched("trained", seed, Slice(embedding="random:5")),
    }


LENGTH = 4
WAYS: dict[str, tuple[str, dict[str, Any], Descent, int]] = {
    "two": ("trained", {"tokens": "2:"}, preset("seed", steps=STEPS), 2),
    "three_direct": (
        "trained", {"tokens": "3:"}, preset("seed-direct", steps=STEPS, loss="cosine", rate=2000.0), 3,
    ),
    "linear": ("trained", {"tokens": "1:"}, preset("seed", steps=STEPS, loss="linear"), 1),
    "cosine": ("trained", {"tokens": "1:"}, preset("seed", steps=STEPS, loss="cosine", rate=200.0), 1),
    "deeper": ("trained", {"tokens": "1:", "sites": ("block.2",)}, preset("seed", steps=STEPS), 1),
    "deeper_cosine": (
        "trained", {"tokens": "1:", "sites": ("block.2",)}, preset("seed", steps=STEPS, loss="cosine", rate=200.0), 1,
    ),
    "last_output": ("trained", {"tokens": "-1"}, preset("seed", steps=STEPS), 3),
    "restricted": ("trained", {"tokens": "1:"}, preset("seed", steps=STEPS, mask="-inf"), 1),
    "attention": ("trained", {"tokens": "1:", "only": "attention"}, preset("seed", steps=STEPS), 1),
    "two_layers": ("llama", {"tokens": "1:", "sites": ("block.1",)}, preset("seed", steps=STEPS), 1),
}  # fmt: skip


def hidden_ways(seed: int) -> Numbers:
    """T19: each way in which the source hides outputs: share of the hidden tokens by descent, and by joint search."""
    found: Numbers = {}
    for name, (kind, options, setting, hidden) in WAYS.items():
        lens = lens_of(kind)
        ids = prompts(lens, seed, PROMPTS, LENGTH)
        ready = Slice(**options).on(lens)
        target = ready.run(ids)
        allowed = _only(lens, ids) if name == "restricted" else None
        tokens = descend(ready, target, LENGTH, setting, allowed=allowed)
        found[f"{name}_descent"] = right(tokens.tokens[:, :hidden], ids[:, :hidden])
        found[f"{name}_top5"] = _among(tokens.top[:, :hidden], ids[:, :hidden])
        found[f"{name}_searched"] = _searched(ready, target, ids, hidden, seed, allowed)
    answers = _first_answers(seed)
    found["commonest_wrong_answer"] = answers
    return found


def _among(top: Tensor, ids: Tensor) -> float:
    return round(float((top == ids[..., None]).any(-1).float().mean()), 3)


def _searched(ready: SlicedModel, target: Tensor, ids: Tensor, hidden: int, seed: int, allowed: Tensor | None) -> float:
    search = JointSearch(restarts=2, steps=60, budget=20_000)
    rows = [joint(ready, one, LENGTH, search, allowed=allowed, seed=seed).tokens for one in target]
    return right(torch.tensor(rows)[:, :hidden], ids[:, :hidden])


def _first_answers(seed: int) -> float:
    """Of eight prompts whose first output is hidden, all descended from one start: the share with the commonest answer."""
    lens = lens_of("trained")
    ready = Slice(tokens="1:").on(lens)
    ids = prompts(lens, seed, 8, LENGTH)
    first = descend(ready, ready.run(ids), LENGTH, preset("seed", steps=STEPS)).tokens[:, 0]
    wrong = first[first != ids[:, 0]].tolist()
    return Counter(wrong).most_common(1)[0][1] / len(wrong) if wrong else 0.0


def bare_attention_hidden(seed: int) -> Numbers:
    """T17: untrained attention alone, no residual, norm or mask: whether hidden tokens are anywhere among the best five."""
    lens = lens_of("llama")
    ids = torch.stack(
        [torch.randperm(1000, generator=torch.Generator().manual_seed(seed + n))[:TOKENS] for n in range(4)]
    )
    found: Numbers = {}
    for hidden in (1, 2):
        cut = Slice(only="attention", residual=False, normalisation=False, causal=False, tokens=f"{hidden}:")
        ready = cut.on(lens)
        top = descend(ready, ready.run(ids), TOKENS, Descent(steps=400, loss="l2")).top.flatten(1)
        seen = [(row[:hidden, None] == best).any(1).float().mean() for row, best in zip(ids, top, strict=True)]
        found[f"hidden_{hidden}_among_five"] = round(float(torch.stack(seen).mean()), 3)
    return found


def attention_channel(seed: int) -> Numbers:
    """T25: one feature of attention alone, by exact search."""
    return {"exact_1": searched("gpt2", seed, Slice(only="attention", features=":1"))}


def last_of_a_layer(seed: int) -> Numbers:
    """T22: all tokens from the last output of one untrained layer, by its width."""
    found: Numbers = {}
    for size in (32, 128, 512):
        lens = lens_of("llama", seed, size, 1)
        ids = prompts(lens, seed, 8, 5)
        ready = Slice(tokens="-1").on(lens)
        for name, setting in (("published", preset("seed", steps=STEPS)), ("adam", Descent(steps=STEPS))):
            found[f"{size}_{name}"] = right(descend(ready, ready.run(ids), 5, setting).tokens, ids)
    return found


VARIANTS = {
    "targets": targets, "restricted_direct": restricted_direct, "wrong_tokens": wrong_tokens,
    "direct_cosine": direct_cosine, "near": near_but_wrong, "table_direct": swapped_direct, "hidden_ways": hidden_ways,
    "attention_hidden": bare_attention_hidden, "attention_channel": attention_channel, "last_output": last_of_a_layer,
}  # fmt: skip
