"""From models and prompts to what their tokens know of each other."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers

import headscan
from headscan.errors import BadInput
from headscan.flow.capacity import noise_accuracy, quantised_accuracy
from headscan.flow.codebook import codebook, distances
from headscan.flow.leak import leak
from headscan.flow.recovery import recovery
from headscan.flow.result import FlowResult
from headscan.flow.variants import variant
from headscan.model import Lens
from headscan.results import check_writable
from headscan.text.display import display

__all__ = ["run"]


def run(
    model: str | Lens | Sequence[str | Lens], prompt: str | Sequence[Any], *, at: str | Sequence[str] = "block.*",
    cuts: Sequence[str] | str = "whole", null: bool = False, length: int | None = None, trials: int = 4,
    candidates: int | None = None, recover: bool = True, channel: bool = False, seed: int = 0,
    out: str | os.PathLike | None = None, command: str | None = None, **loading: Any,
) -> FlowResult:  # fmt: skip
    """For every input token i and output position j of each site: how far j moves with i, and whether j gives i away.

    Args:
        model: a `Lens`, what `Lens.load` takes, or several: trained and untrained, narrow and wide, transformer and
            mixer are compared part by part.
        prompt: a text, token ids, or several of either; matrices are averaged over them.
        at: sites, as globs.
        cuts: names of `headscan.flow.VARIANTS`, joined with "+", several as a list or with commas.
        null: add an untrained twin of each model ("fresh").
        length: tokens of each prompt that are used; by default as many as the shortest has.
        trials: random replacements a token, for the leak.
        candidates: tokens tried for recovery; None is the whole vocabulary.
        recover: try the vocabulary for every token; else only the leak is measured.
        channel: add noise, rounding and codebook distances at the deepest site.
        seed: of replacements, noise and random features.
        out: a folder to save the result in.
        command: what to record in the protocol.
        loading: options of `Lens.load`.

    Raises:
        BadInput: no prompt, a prompt of one token, a site or cut that is not there.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> found = run(lens, [3, 1, 4, 1, 5])
    >>> found.arrays["leak"].shape, bool(found.arrays["leak"][1][4, 0] == 0)
    ((2, 5, 5), True)
    """
    started = time.time()
    if out is not None:
        check_writable(out)
    lenses = [one if isinstance(one, Lens) else Lens.load(one, **loading) for one in _several(model, (str, Lens))]
    names = cuts.split(",") if isinstance(cuts, str) else list(cuts)
    names = [name.strip() for name in names if name.strip()] + (["fresh"] if null else [])
    prompts = [_prompts(lens, prompt, length) for lens in lenses]
    shortest = min(ids.shape[1] for ids in prompts)
    prompts = [ids[:, :shortest] for ids in prompts]
    parts: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for lens, ids in zip(lenses, prompts, strict=True):
        sites = lens.match(at)
        for name in names:
            cut = variant(name, sites)
            found = {"leak": leak(lens, cut, ids, trials=trials, seed=seed)}
            extra: dict[str, Any] = {"noise": None, "candidates": None, "exhaustive": None}
            if recover:
                again = recovery(lens, cut, ids, most=candidates, seed=seed)
                found |= {"recoverable": again.recoverable, "margin": again.margin}
                extra = {"noise": again.noise.tolist(), "candidates": again.candidates, "exhaustive": again.exhaustive}
            number = len(parts)
            for key, values in found.items():
                arrays[f"{key}/{number}"] = values.astype(np.float32)
                if number == 0:
                    arrays[key] = values.astype(np.float32)
            measured = list(cut.on(lens).sites)
            parts.append(
                {"model": lens.name, "cut": name, "slice": str(cut.but(sites=(measured[-1],))), **extra,
                 "tokens": _shown(lens, ids),
                 "sites": [_summary(site, k, found) for k, site in enumerate(measured)],
                 "channel": _channel(lens, name, measured[-1], ids, seed) if channel else None}
            )  # fmt: skip
    first = parts[0]
    result = FlowResult(
        {
            "headscan": headscan.__version__,
            "site": first["sites"][-1]["site"],
            "sites": [entry["site"] for entry in first["sites"]],
            "tokens": first["tokens"],
            "leak": first["sites"][-1],
            "parts": parts,
            "models": [lens.provenance() for lens in lenses],
            "protocol": {
                "command": command, "prompts": len(prompts[0]), "length": shortest, "trials": trials, "seed": seed,
                "device": str(lenses[0].device),
                "versions": {
                    "headscan": headscan.__version__, "torch": torch.__version__,
                    "transformers": transformers.__version__, "python": platform.python_version(),
                },
                "started": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
                "seconds": round(time.time() - started, 3),
            },
        },
        arrays,
    )  # fmt: skip
    if out is not None:
        result.save(out)
    return result


def _several(value: Any, one: Any) -> list[Any]:
    return [value] if isinstance(value, one) else list(value)


def _prompts(lens: Lens, prompt: Any, length: int | None) -> torch.Tensor:
    """Token ids [N, T], each prompt cut to the length of the shortest."""
    if isinstance(prompt, str) or (len(prompt) > 0 and isinstance(prompt[0], int | np.integer)):
        prompt = [prompt]
    rows = []
    for one in prompt:
        if isinstance(one, str):
            if not one.strip():
                raise BadInput("The prompt is empty.")
            rows.append(lens.require_tokenizer().encode(one, add_special_tokens=False))
        else:
            rows.append([int(i) for i in one])
    if not rows or not all(rows):
        raise BadInput("The prompt is empty.")
    least = min([len(row) for row in rows] + ([length] if length is not None else []))
    if least < 2:
        raise BadInput("A prompt of one token has no two tokens that could know of each other; give at least two.")
    ids = torch.tensor([row[:least] for row in rows])
    if lens.context_length is not None and least > lens.context_length:
        raise BadInput(f"The prompt has {least} tokens, but '{lens.name}' takes at most {lens.context_length}.")
    if int(ids.max()) >= lens.vocabulary_size or int(ids.min()) < 0:
        raise BadInput(f"Token id {int(ids.max())} is not in the vocabulary of '{lens.name}'.")
    return ids


def _shown(lens: Lens, ids: torch.Tensor) -> list[str]:
    """The tokens of a single prompt; of several, their positions."""
    if len(ids) > 1 or lens.tokenizer is None:
        return [f"#{k}" for k in range(ids.shape[1])]
    return display(lens.tokenizer, ids[0].tolist())


def _summary(site: str, index: int, found: dict[str, np.ndarray]) -> dict[str, Any]:
    """Means over own (i = j), later (i < j: what an output keeps of tokens before it) and earlier (i > j) outputs."""
    entry: dict[str, Any] = {"site": site}
    for key, arrays in found.items():
        matrix = arrays[index]
        before, behind = np.triu_indices(len(matrix), 1), np.tril_indices(len(matrix), -1)
        entry |= {
            f"{key}_own": float(np.diag(matrix).mean()),
            f"{key}_of_earlier": float(matrix[before].mean()),
            f"{key}_of_later": float(matrix[behind].mean()),
        }
    return entry


def _channel(lens: Lens, name: str, site: str, ids: torch.Tensor, seed: int) -> dict[str, Any]:
    book = codebook(lens, variant(name, [site]), ids[0, :-1].tolist())
    return {
        "site": site,
        "vocabulary": len(book),
        "width": book.shape[1],
        "distances": distances(book),
        "noise": noise_accuracy(book, seed=seed),
        "quantised": quantised_accuracy(book, seed=seed),
    }
