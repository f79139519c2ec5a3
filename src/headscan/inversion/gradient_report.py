"""What the gradient of one training step gives away: which tokens were in its batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

import headscan
from headscan.errors import BadInput
from headscan.inversion.given import first_gradient, tokens_in_gradient
from headscan.model.lens import Lens
from headscan.results import Result
from headscan.text import display

__all__ = ["GradientResult", "leaked_gradient"]


@dataclass(frozen=True, repr=False)
class GradientResult(Result):
    """Tokens read from a gradient: `document["tokens"]`, one entry a token and position, with its distance.

    `recall` is the share of the batch's tokens that were found (the last of each text has no gradient and is left out),
    `precision` the share of those found that were there, `precision_anywhere` the same regardless of the position.
    """

    kind = "gradient"

    def frame(self):
        """A pandas table, one row a token found."""
        import pandas as pd

        return pd.DataFrame(self.document["tokens"])


def leaked_gradient(
    model: str | Lens,
    prompts: Sequence[str],
    *,
    tolerance: float = 1e-3,
    tokenizer: Any = None,
    out: Any = None,
    command: str | None = None,
    **loading: Any,
) -> GradientResult:
    """Make one training step's gradient on a batch of texts, forget the texts, and read off which tokens were there.

    The texts are cut to the shortest, so that they are one batch; the loss is that of the next token. Source: the span
    check of Petrov et al., "DAGER", arXiv:2405.15586.

    What is certified: a token far from the gradient's span was in no text (but a text's last token has no gradient). What
    is a guess: that a token inside it was there. Vectors of which some are sums and differences of others fail it: with
    position embeddings, if u stands at positions 1 and 6 and v at 6, then v seems to stand at 1, too. At full rank
    nothing is shown, and the result says so. Order and grouping into texts are not recovered; with position embeddings
    the position of each token is, apart from such mirages.

    Args:
        model: a Lens or what `Lens.load` takes; it must have a next-token head.
        prompts: the batch, one text a row.
        tolerance: relative distance from the span that counts as inside.
        tokenizer, loading: as for `Lens.load`. out, command: as for `invert`.

    Raises:
        BadInput: no text, a text of fewer than two tokens, a model without a head.
    """
    lens = model if isinstance(model, Lens) else Lens.load(model, tokenizer=tokenizer, **loading)
    rows = _batch(lens, prompts)
    started = time.time()
    length = rows.shape[1]
    found = tokens_in_gradient(lens, first_gradient(lens, rows), length, tolerance=tolerance)
    used = rows[:, :-1]
    anywhere = set(used.flatten().tolist())
    entries: list[dict[str, Any]] = []
    for place, tokens in found.tokens.items():
        there = set((used if place < 0 else rows[:, place]).flatten().tolist())
        last = place == length - 1
        for token, distance in zip(tokens, found.residuals[place], strict=True):
            entries.append(
                {
                    "position": None if place < 0 else place,
                    "token": token,
                    "string": display(lens.tokenizer, [token])[0],
                    "distance": distance,
                    "in_batch": token in there and not last,
                    "elsewhere": token in anywhere,
                }
            )
    seen = {(entry["position"], entry["token"]) for entry in entries if entry["in_batch"]}
    with_positions = -1 not in found.tokens
    wanted = {
        (place if with_positions else None, int(token)) for row in used for place, token in enumerate(row.tolist())
    }
    full = found.rank >= found.width
    document = {
        "headscan": headscan.__version__,
        "models": [asdict(lens.provenance())],
        "tokens": entries,
        "batch": rows.tolist(),
        "batch_strings": [display(lens.tokenizer, row.tolist()) for row in rows],
        "recall": len(seen & wanted) / len(wanted),
        "precision": sum(entry["in_batch"] for entry in entries) / len(entries) if entries else None,
        "precision_anywhere": sum(entry["elsewhere"] for entry in entries) / len(entries) if entries else None,
        "rank": found.rank,
        "width": found.width,
        "with_positions": with_positions,
        "nearest_other": found.nearest_other,
        "tolerance": tolerance,
        "certified": _sentence(full, with_positions),
        "protocol": {"command": command, "started": started, "seconds": time.time() - started, "length": length},
    }
    result = GradientResult(document)
    if out is not None:
        result.save(out)
    return result


def _batch(lens: Lens, prompts: Sequence[str]) -> torch.Tensor:
    if "head" not in lens.sites or lens.output_embeddings is None:
        raise BadInput(f"'{lens.name}' has no next-token head, so there is no training step whose gradient could leak.")
    if not prompts or not all(prompts):
        raise BadInput("The prompt is empty.")
    if lens.traits.quantised:
        raise BadInput("Quantised weights are not trained and have no gradient: load the model without --quantize.")
    tokenizer = lens.require_tokenizer()
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in prompts]
    length = min(map(len, ids))
    if length < 2:
        raise BadInput("A training step needs texts of at least two tokens: one to predict from, one to predict.")
    if lens.context_length and length > lens.context_length:
        raise BadInput(f"The input has {length} tokens, but '{lens.name}' takes at most {lens.context_length}.")
    return torch.tensor([row[:length] for row in ids], device=lens.device)


def _sentence(full: bool, with_positions: bool) -> str:
    if full:
        return (
            "Nothing is certified: the batch has as many tokens as the model has features, so every token lies in the "
            "gradient's span."
        )
    mirage = ": where a token stands at two positions, those beside it show at both" if with_positions else ""
    where = "at that position of any text" if with_positions else "in any text"
    return (
        f"Certified: a token that is not listed was not {where}, a text's last token apart, which has no gradient. That a "
        f"listed token was there is a guess{mirage}. Order and grouping are not recovered."
    )
