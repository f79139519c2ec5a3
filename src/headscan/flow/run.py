"""From models and prompts to what their tokens know of each other."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import transformers

import headscan
from headscan.errors import BadInput
from headscan.flow.channel import channel as measure_channel
from headscan.flow.leak import leak
from headscan.flow.recovery import recovery
from headscan.flow.result import FlowResult
from headscan.flow.sources import find_models, find_prompts
from headscan.flow.variants import variant
from headscan.flow.width import SEARCHES
from headscan.model import Lens
from headscan.results import check_writable
from headscan.text.display import display

__all__ = ["run"]


def run(
    model: str | Lens | Sequence[str | Lens], prompt: str | Sequence[Any] | None = None, *, text: Any = None,
    prompts: int = 8, at: str | Sequence[str] = "block.*", cuts: Sequence[str] | str = "whole", null: bool = False,
    wider: int | Sequence[int] = (), revisions: str | Sequence[str] | None = None, length: int | None = None,
    trials: int = 4, candidates: int | None = None, recover: bool = True, channel: bool = False,
    searches: Sequence[str] | str = ("exact", "adam"), seed: int = 0,
    out: str | os.PathLike | None = None, command: str | None = None, **loading: Any,
) -> FlowResult:  # fmt: skip
    """For every input token i and output position j of each site: how far j moves with i, and whether j gives i away.

    Args:
        model: a `Lens`, what `Lens.load` takes, or several: trained and untrained, narrow and wide, transformer and
            mixer, or checkpoints in their order, are compared part by part.
        prompt: a text, token ids, or several of either; matrices are averaged over them.
        text: take prompts from this text instead (or as well): what `headscan.scan` takes.
        prompts: so many windows of `length` (by default 16) tokens from the text's beginning.
        at: sites, as globs.
        cuts: names of `headscan.flow.VARIANTS`, joined with "+", several as a list or with commas.
        null: add an untrained twin of each model ("fresh").
        wider: add untrained twins so many times as wide.
        revisions: of one Hugging Face id, in order, such as "step1000,step2000": each is a model, ID@REVISION.
        length: tokens of each prompt that are used; by default as many as the shortest has.
        trials: random replacements a token, for the leak.
        candidates: tokens tried for recovery; None is the whole vocabulary.
        recover: try the vocabulary for every token; else only the leak is measured.
        channel: add noise, rounding, codebook distances, width sweep and thresholds at the deepest site.
        searches: how `channel` looks for tokens, see `headscan.flow.width.SEARCHES`; names, or one text with commas.
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
    sought = [one.strip() for one in searches.split(",")] if isinstance(searches, str) else list(searches)
    if unknown := [one for one in sought if one not in SEARCHES]:
        raise BadInput(f"There is no search '{unknown[0]}'; there are: {', '.join(SEARCHES)}.")
    if prompt is None and text is None:
        raise BadInput("Give a prompt, or a text that prompts are taken from.")
    lenses = find_models(model, revisions, [wider] if isinstance(wider, int) else wider, seed, loading)
    names = cuts.split(",") if isinstance(cuts, str) else list(cuts)
    names = [name.strip() for name in names if name.strip()] + (["fresh"] if null else [])
    read = [find_prompts(lens, prompt, text, prompts, length) for lens in lenses]
    shortest = min(ids.shape[1] for ids, _ in read)
    parts: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for lens, (ids, _) in zip(lenses, read, strict=True):
        ids = ids[:, :shortest]
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
                 "channel": measure_channel(lens, name, measured[-1], ids, searches=sought, seed=seed) if channel else None}
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
            "models": [asdict(lens.provenance()) for lens in lenses],
            "protocol": {
                "command": command, "text": read[0][1], "prompts": len(read[0][0]), "length": shortest,
                "trials": trials, "seed": seed,
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
