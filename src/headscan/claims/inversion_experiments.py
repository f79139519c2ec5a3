"""The experiments behind the claims on inversion: each measures once and serves several claims."""

from __future__ import annotations

from typing import Any

import torch

from headscan.claims.stand_ins import STEPS, TOKENS, Numbers, gradient, lens_of, prompts, right, searched
from headscan.inversion import Decoder, Descent, JointSearch, descend, exact, joint, preset
from headscan.model.slicing import Slice, leak_check

__all__ = ["EXPERIMENTS"]


def restricted(seed: int) -> Numbers:
    """T1, T3: accuracy of the published descent as the vocabulary shrinks, trained and random."""
    found: Numbers = {}
    for kind in ("trained", "gpt2"):
        lens = lens_of(kind)
        own = prompts(lens, seed).unique()
        for extra in (0, 13, 100):
            allowed = torch.zeros(lens.vocabulary_size, dtype=torch.bool)
            allowed[own] = True
            more = torch.randperm(lens.vocabulary_size, generator=torch.Generator().manual_seed(seed))[:extra]
            allowed[more] = True
            found[f"{kind}_{extra}_extra"] = gradient(
                kind, seed, allowed=allowed, setting=preset("seed", steps=STEPS, mask="-inf")
            )
        found[f"{kind}_all"] = gradient(kind, seed)
        found[f"{kind}_exact"] = searched(kind, seed)
    return found


def depth(seed: int) -> Numbers:
    """T2: first, middle and last block, by gradient and by search."""
    found: Numbers = {}
    for kind in ("trained", "gpt2", "llama"):
        blocks = lens_of(kind).depth
        for name, block in (("first", 0), ("middle", (blocks - 1) // 2), ("last", blocks - 1)):
            cut = Slice(sites=(f"block.{block}",))
            found[f"{kind}_{name}_published"] = gradient(kind, seed, cut)
            found[f"{kind}_{name}_adam"] = gradient(kind, seed, cut, Descent(steps=STEPS))
            found[f"{kind}_{name}_exact"] = searched(kind, seed, cut)
    found["either_last_published"] = max(found["trained_last_published"], found["gpt2_last_published"])
    found["both_last_exact"] = min(found["trained_last_exact"], found["gpt2_last_exact"])
    return found


def projector(seed: int) -> Numbers:
    """T4: W^+ takes every embedding back to its token, the mean of the diagonal of W W^+ being d / V."""
    table = lens_of("gpt2").input_embeddings.detach()
    scores = Decoder(table).pinv(table)
    return {
        "argmax_right": float((scores.argmax(-1) == torch.arange(len(table))).float().mean()),
        "mean_diagonal": round(float(scores.diagonal().mean()), 5),
        "width_by_vocabulary": table.shape[1] / len(table),
    }


def direct(seed: int) -> Numbers:
    """T5, T15: direct inversion from noise and from zero; whether two models give the same wrong tokens."""
    found: Numbers = {}
    for kind in ("trained", "gpt2", "llama"):
        found[f"{kind}_noise"] = gradient(kind, seed, setting=preset("seed-direct", steps=STEPS))
        found[f"{kind}_zero"] = gradient(
            kind, seed, setting=Descent(method="direct", init="zeros", steps=STEPS, rate=0.02)
        )
        found[f"{kind}_exact"] = searched(kind, seed)
    answers = []
    for kind in ("gpt2", "llama"):
        ready = Slice().on(lens_of(kind))
        ids = prompts(lens_of(kind), seed + (kind == "llama"))
        answers.append(descend(ready, ready.run(ids), TOKENS, preset("seed-direct", steps=20)).tokens)
    found["same_wrong_tokens_in_two_models"] = right(answers[0], answers[1])
    return found


def several_sites(seed: int) -> Numbers:
    """T7: the outputs of three blocks concatenated against the last alone."""
    cut = Slice(sites=("block.0", "block.1", "block.2"))
    return {
        f"{kind}_{name}": gradient(kind, seed, one)
        for kind in ("trained", "gpt2")
        for name, one in (("three_blocks", cut), ("last_block", Slice(sites=("block.2",))))
    }


def metrics(seed: int) -> Numbers:
    """T8, T14: losses, indirect and direct."""
    found: Numbers = {}
    for kind in ("trained", "gpt2", "llama"):
        for loss, rate in (("l1", 0.2), ("cosine", 200.0), ("linear", 0.2)):
            found[f"{kind}_{loss}"] = gradient(kind, seed, setting=preset("seed", steps=STEPS, loss=loss, rate=rate))
        found[f"{kind}_direct_cosine"] = gradient(
            kind, seed, setting=preset("seed-direct", steps=STEPS, loss="cosine", rate=2000.0)
        )
        found[f"{kind}_adam_cosine"] = gradient(kind, seed, setting=Descent(loss="cosine", steps=STEPS))
        found[f"{kind}_exact"] = searched(kind, seed)
    return found


def sequential(seed: int) -> Numbers:
    """T11: one token after another, with the prefix that was found, and without any (as published)."""
    lens = lens_of("gpt2")
    ready = Slice().on(lens)
    ids = prompts(lens, seed)
    target = ready.run(ids)
    alone = [descend(ready, target[:, place : place + 1], 1, Descent(steps=STEPS)).tokens for place in range(TOKENS)]
    return {
        "with_prefix": searched("gpt2", seed),
        "without_prefix": right(torch.cat(alone, 1), ids),
        "without_prefix_first": right(alone[0], ids[:, :1]),
    }


def swapped_table(seed: int) -> Numbers:
    """T12: the slice runs with another embedding table than it decodes with."""
    lens = lens_of("trained")
    cut = Slice(embedding="random:5").on(lens)
    ids = prompts(lens, seed)
    target = cut.run(ids)
    own = descend(cut, target, TOKENS, Descent(steps=STEPS))
    wrong = descend(
        cut, target, TOKENS, Descent(steps=STEPS, check_every=0), decode_with=lens.input_embeddings.detach()
    )
    return {"decoded_with_its_table": right(own, ids), "decoded_with_the_models": right(wrong, ids)}


def more_steps(seed: int) -> Numbers:
    """T13: more steps, and the best five beside the best one."""
    found: Numbers = {}
    for kind in ("gpt2", "llama", "trained"):
        lens = lens_of(kind)
        ready = Slice().on(lens)
        ids = prompts(lens, seed)
        for steps in (50, 200, 800):
            one = descend(ready, ready.run(ids), TOKENS, preset("seed", steps=steps))
            found[f"{kind}_{steps}"] = right(one, ids)
            found[f"{kind}_{steps}_top5"] = round(float((one.top == ids[..., None]).any(-1).float().mean()), 3)
        found[f"{kind}_exact"] = searched(kind, seed)
    return found


def single_token(seed: int) -> Numbers:
    """T15, T16: prompts of one token and of six, with and without norms."""
    lens = lens_of("llama")
    found: Numbers = {}
    for norm in (True, False):
        ready = Slice(normalisation=norm).on(lens)
        for length in (1, 2, TOKENS):
            ids = prompts(lens, seed, 8, length)
            setting = preset("seed", steps=STEPS, loss="cosine", rate=200.0)
            name = f"{length}_tokens_{'norm' if norm else 'no_norm'}"
            found[f"cosine_{name}"] = right(descend(ready, ready.run(ids), length, setting), ids)
            found[f"l1_{name}"] = right(descend(ready, ready.run(ids), length, preset("seed", steps=STEPS)), ids)
    return found


def attention_only(seed: int) -> Numbers:
    """T17, T20, T21: attention alone, with and without residual, mask and norm: which tokens, and in which order."""
    lens = lens_of("llama")
    ids = torch.stack(
        [torch.randperm(1000, generator=torch.Generator().manual_seed(seed + n))[:TOKENS] for n in range(4)]
    )
    found: Numbers = {}
    ways: tuple[tuple[str, dict[str, Any]], ...] = (
        ("bare", {"residual": False, "causal": False, "normalisation": False}),
        ("residual", {"residual": True, "causal": False}),
    )
    for name, options in ways:
        ready = Slice(only="attention", **options).on(lens)
        tokens = descend(ready, ready.run(ids), TOKENS, Descent(steps=400, loss="l2")).tokens
        found[f"{name}_order"] = right(tokens, ids)
        shared = [len(set(a) & set(b)) / TOKENS for a, b in zip(tokens.tolist(), ids.tolist(), strict=True)]
        found[f"{name}_set"] = round(sum(shared) / len(shared), 3)
    found["smaller_set"] = min(found["bare_set"], found["residual_set"])
    for name, causal in (("model", None), ("lifted", False)):
        moved = leak_check(Slice(causal=causal), lens, ids[0])
        found[f"later_moves_earlier_{name}"] = bool((moved.tril(-1) > 0).any())
    trained = lens_of("trained")
    own = prompts(trained, seed)
    for residual in (True, False):
        ready = Slice(only="attention", residual=residual).on(trained)
        key = "with" if residual else "without"
        found[f"trained_{key}_residual_adam"] = right(descend(ready, ready.run(own), TOKENS, Descent(steps=STEPS)), own)
        tokens = torch.tensor([one.tokens for one in exact(ready, list(ready.run(own)))])
        found[f"trained_{key}_residual_exact"] = right(tokens, own)
    return found


def prefix_outputs(seed: int) -> Numbers:
    """T18: the first outputs say nothing of later tokens."""
    lens = lens_of("trained")
    ready = Slice(tokens=":2").on(lens)
    ids = prompts(lens, seed)
    tokens = descend(ready, ready.run(ids), TOKENS, Descent(steps=STEPS, check_every=0)).tokens
    first = torch.tensor([one.tokens for one in exact(Slice().on(lens), [one[:2] for one in Slice().run(lens, ids)])])
    moved = leak_check(Slice(tokens=":2"), lens, ids[0])
    return {
        "gradient_seen": right(tokens[:, :2], ids[:, :2]),
        "gradient_unseen": right(tokens[:, 2:], ids[:, 2:]),
        "exact_seen": right(first, ids[:, :2]),
        "later_tokens_move_outputs": bool((moved[2:] > 0).any()),
    }


def hidden_tokens(seed: int) -> Numbers:
    """T19: the first output is not given: by gradient, and by joint search with verification."""
    found: Numbers = {}
    for kind in ("trained", "llama", "gpt2"):
        lens = lens_of(kind)
        ids = prompts(lens, seed, 3, 4)
        ready = Slice(tokens="1:").on(lens)
        target = ready.run(ids)
        for name, setting in (("published", preset("seed", steps=STEPS)), ("adam", Descent(steps=STEPS))):
            tokens = descend(ready, target, 4, setting).tokens
            found[f"{kind}_hidden_{name}"] = right(tokens[:, :1], ids[:, :1])
            found[f"{kind}_shown_{name}"] = right(tokens[:, 1:], ids[:, 1:])
        search = JointSearch(restarts=2, steps=60, budget=20_000)
        rows = [joint(ready, one, 4, search, seed=seed).tokens for one in target]
        found[f"{kind}_hidden_searched"] = right(torch.tensor(rows)[:, :1], ids[:, :1])
    return found


def width(seed: int) -> Numbers:
    """T22: a hidden first token against the width of an untrained attention layer."""
    found: Numbers = {}
    for size in (32, 128, 512):
        lens = lens_of("llama", seed, size, 1)
        ids = prompts(lens, seed, 8, 5)
        ready = Slice(tokens="1:").on(lens)
        for name, setting in (("published", preset("seed", steps=STEPS)), ("adam", Descent(steps=STEPS))):
            tokens = descend(ready, ready.run(ids), 5, setting).tokens
            found[f"{size}_{name}"] = right(tokens[:, :1], ids[:, :1])
    return found


def channel(seed: int) -> Numbers:
    """T25: how many features are needed: by descent from two starts, by search; contiguous and random features."""
    lens = lens_of("gpt2")
    ids = prompts(lens, seed)
    found: Numbers = {}
    for size in (1, 8, 64, 128, 256):
        ready = Slice(features=f":{size}").on(lens)
        target = ready.run(ids)
        for name, setting in (
            ("noise", Descent(init="noise", steps=STEPS)),
            ("zero", Descent(init="zeros", steps=STEPS)),
        ):
            found[f"{name}_{size}"] = right(descend(ready, target, TOKENS, setting), ids)
        found[f"exact_{size}"] = right(torch.tensor([one.tokens for one in exact(ready, list(target))]), ids)
    for name, features in (("first", ":128"), ("last", "128:256"), ("random", "random(128, 1)")):
        found[f"half_{name}"] = gradient("gpt2", seed, Slice(features=features), Descent(steps=STEPS))
    return found


def noisy_channel(seed: int) -> Numbers:
    """T26: share of tokens that one state gives away under noise, by width; random and trained."""
    found: Numbers = {}
    generator = torch.Generator().manual_seed(seed)
    for kind in ("gpt2", "trained"):
        lens = lens_of(kind)
        table = Slice().on(lens).states(torch.arange(lens.vocabulary_size)[:, None])[:, 0].float()
        sigma = 0.5 * float(table.std(0).mean())
        noisy = table + sigma * torch.randn(table.shape, generator=generator)
        total = table.shape[1]
        for size in (total // 16, total // 4, total):
            near = torch.cdist(noisy[:, :size], table[:, :size]).argmin(1)
            found[f"{kind}_{size}"] = right(near, torch.arange(len(table)))
    return found


EXPERIMENTS = {
    "restricted": restricted, "depth": depth, "projector": projector, "direct": direct,
    "sites": several_sites, "metrics": metrics, "sequential": sequential, "table": swapped_table, "steps": more_steps,
    "single": single_token, "attention": attention_only, "prefix": prefix_outputs, "hidden": hidden_tokens,
    "width": width, "channel": channel, "noise": noisy_channel,
}  # fmt: skip
