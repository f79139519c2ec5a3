"""The privacy report: how much of a text a leaked hidden state gives away."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import headscan
from headscan.errors import BadInput
from headscan.inversion.degrade import add_noise, round_states
from headscan.inversion.descent import Descent, descend
from headscan.inversion.exact import Search, exact
from headscan.inversion.losses import relative
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.results import Result

__all__ = ["PrivacyResult", "privacy"]


@dataclass(frozen=True, repr=False)
class PrivacyResult(Result):
    """One row a site and kind of damage: `document["rows"]`."""

    kind = "privacy"

    def frame(self):
        """A pandas table of the rows."""
        import pandas as pd

        return pd.DataFrame(self.document["rows"])


def privacy(
    model: str | Lens,
    text: str | Sequence[str],
    *,
    sites: str = "block.*",
    prompts: int = 10,
    length: int = 8,
    noise: Sequence[float] = (0.01, 0.1, 0.3),
    rounding: Sequence[int] = (8, 4),
    weights: Sequence[int] = (8,),
    seed: int = 0,
    tokenizer: Any = None,
    out: Any = None,
    command: str | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
    **loading: Any,
) -> PrivacyResult:
    """How many tokens of a text can be read off hidden states that leaked, clean or damaged.

    Windows of the text are run; at each site all their states are taken as leaked and inverted, by exact search and
    (clean states only) by gradients. Whoever inverts has the model, knows how the states were damaged, and sets the
    tolerance by trying the damage on random tokens of the same model.

    Args:
        model: a Lens or what `Lens.load` takes; it must be causal.
        text: the sample, one or more documents.
        sites: globs.
        prompts, length: windows taken, evenly spaced, and their tokens.
        noise: Gaussian noise as shares of each state's norm.
        rounding: bits to which states are rounded.
        weights: the victim's model has weights of so many bits, the attacker's has not.
        seed: of noise and the calibration.
        out, command, progress, tokenizer, loading: as for `invert`.

    Returns:
        Rows with site, damage, method, token_accuracy, passes_per_token (token positions run), seconds_per_token.
    """
    if prompts < 1 or length < 1:
        raise BadInput("A privacy report needs at least one window of at least one token.")
    if any(share < 0 for share in noise) or any(bits < 2 for bits in rounding):
        raise BadInput("Noise cannot be negative, and states cannot be rounded to fewer than 2 bits.")
    lens = model if isinstance(model, Lens) else Lens.load(model, tokenizer=tokenizer, **loading)
    windows = _windows(lens, [text] if isinstance(text, str) else list(text), prompts, length)
    rows: list[dict[str, Any]] = []
    names = lens.match(sites)
    for number, site in enumerate(names):
        cut = Slice(sites=(site,)).on(lens)
        if not cut.causal:
            raise BadInput("The privacy report inverts from left to right and needs a causal model.")
        for damage, run in _damages(lens, cut, noise, rounding, weights, seed):
            rows.append({"site": site, "damage": damage, "method": "exact"} | _exact(cut, run, windows, seed))
        rows.append({"site": site, "damage": "none", "method": "gradient"} | _gradient(cut, windows))
        if progress:
            progress("sites", number + 1, len(names))
    document = {
        "headscan": headscan.__version__,
        "rows": rows,
        "models": [asdict(lens.provenance())],
        "protocol": {"command": command, "prompts": len(windows), "length": length, "seed": seed, "sites": list(names)},
    }
    result = PrivacyResult(document)
    if out is not None:
        result.save(out)
    return result


def _windows(lens: Lens, texts: list[str], prompts: int, length: int) -> Tensor:
    tokenizer = lens.require_tokenizer()
    ids = [token for text in texts for token in tokenizer(text[:200_000], add_special_tokens=False)["input_ids"]]
    if len(ids) < length:
        raise BadInput(f"The text has {len(ids)} tokens, fewer than one window of {length}.")
    count = min(prompts, len(ids) // length)
    starts = torch.linspace(0, len(ids) - length, count).long()
    return torch.stack([torch.tensor(ids[int(start) : int(start) + length]) for start in starts])


def _damages(
    lens: Lens, cut: SlicedModel, noise: Sequence[float], rounding: Sequence[int], weights: Sequence[int], seed: int
) -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    found: list[tuple[str, Callable[[Tensor], Tensor]]] = [("none", cut.run)]
    for share in noise:
        found.append((f"noise {share:g}", partial(_noisy, cut, share, seed)))
    for bits in rounding:
        found.append((f"states of {bits} bits", partial(_rounded, cut, bits)))
    for bits in () if lens.traits.quantised else weights:  # those are rounded already
        found.append((f"weights of {bits} bits", cut.slice.but(bits=bits).on(lens).run))
    return found


def _noisy(cut: SlicedModel, share: float, seed: int, ids: Tensor) -> Tensor:
    return add_noise(cut.run(ids), share, seed)


def _rounded(cut: SlicedModel, bits: int, ids: Tensor) -> Tensor:
    return round_states(cut.run(ids), bits)


@torch.no_grad()
def _exact(cut: SlicedModel, run: Callable[[Tensor], Tensor], windows: Tensor, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed + 1)
    random = torch.randint(0, cut.vocabulary_size, windows.shape, generator=generator)
    blur = float(relative(run(random), cut.run(random)).max())
    search = Search(tolerance=max(1e-4, 1.2 * blur), neighbours=32 if blur > 1e-4 else 0)
    targets = run(windows).float()
    start = time.process_time()
    found = exact(cut, list(targets), search)
    seconds = time.process_time() - start
    tokens = torch.tensor([one.tokens for one in found])
    return {
        "token_accuracy": float((tokens == windows).float().mean()),
        "tolerance": search.tolerance,
        "evaluations_per_token": sum(sum(one.evaluations) for one in found) / windows.numel(),
        "passes_per_token": sum(one.passes for one in found) / windows.numel(),
        "seconds_per_token": seconds / windows.numel(),
    }


def _gradient(cut: SlicedModel, windows: Tensor) -> dict[str, Any]:
    start = time.process_time()
    with torch.no_grad():
        target = cut.run(windows)
    found = descend(cut, target, windows.shape[1], Descent(steps=200))
    return {
        "token_accuracy": float((found.tokens.cpu() == windows).float().mean()),
        "tolerance": None,
        "evaluations_per_token": None,
        "passes_per_token": found.passes / windows.numel(),
        "seconds_per_token": (time.process_time() - start) / windows.numel(),
    }
