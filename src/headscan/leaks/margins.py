"""Margins of layers: how far apart two prompts' states stay, and which rounding makes them equal."""

from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float, Int
from scipy.stats import binom
from torch import Tensor

from headscan.leaks.audit import share_interval
from headscan.leaks.channels import sites_of
from headscan.leaks.mechanisms import read_format
from headscan.leaks.result import TrialRow
from headscan.leaks.run import TESTS, LeakTest, windows_of
from headscan.model.lens import Lens
from headscan.run import BadInput, Given, Interval, Option, Run

FORMATS = ("fp32", "bf16", "int8", "int4")


def nearest_of(states: Float[Tensor, "N w"], ids: Int[Tensor, "N T"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Of each prompt the distance to the nearest other, and the least ratio of a distance to the share of tokens that differ."""
    away = torch.cdist(states.double(), states.double(), compute_mode="donot_use_mm_for_euclid_dist")
    apart = torch.cdist(ids.double(), ids.double(), p=0) / ids.shape[1]
    away = away.masked_fill(apart == 0, torch.inf)
    return away.amin(1), (away / apart.clamp_min(1e-9)).amin(1)


def low_quantile(values: Float[Tensor, " N"], level: float = 0.05) -> tuple[float, Interval]:
    """A low quantile of a sample, with the 95 % interval between two of its order statistics (distribution-free).

    >>> low_quantile(torch.arange(100.0))
    (5.0, (0.0, 10.0))
    """
    ordered, count = values.sort().values.tolist(), len(values)
    low, high = (int(binom.ppf(end, count, level)) for end in (0.025, 0.975))
    return ordered[int(level * count)], (ordered[low - 1] if low else 0.0, ordered[min(high, count - 1)])


def collisions(states: Float[Tensor, "N w"], form: str) -> tuple[float, Interval]:
    """The share of prompts whose states a number format makes equal to another's, with its 95 % interval in [0, 1]."""
    counts = read_format(form)(states).unique(dim=0, return_counts=True)[1]
    share = 1 - int((counts == 1).sum()) / len(states)
    return share, share_interval(share, len(states))


@TESTS.register("margins")
class Margins(LeakTest):
    """Separation margin and co-Lipschitz constant of a layer's last states, and prompts that rounding makes equal.

    The least distance between the states of two prompts, and its least ratio to the share of tokens in which they differ (von
    Strauss, arXiv:2511.14808), in the root of the states' total variance. Prompts are windows of the text, and each again with
    one token exchanged. The least of a sample bounds that of all prompts from above; a change below half of it confuses none.
    """

    releases: ClassVar[tuple[str, ...]] = ("states",)
    prompts: Annotated[int, Option("Prompts of the text.", low=20, high=4000)] = 300

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        rows, names, found = windows_of(texts, self.prompts, asked["length"]), sites_of(lens, asked), list[TrialRow]()
        if len(rows) < 20:
            raise BadInput(f"Margins need 20 prompts of {asked['length']} tokens; the text has {len(rows)}.")
        draw = torch.Generator().manual_seed(asked["seed"])
        moved, places = rows.clone(), torch.randint(rows.shape[1], (len(rows),), generator=draw)
        moved[torch.arange(len(rows)), places] = rows.flatten()[torch.randint(rows.numel(), (len(rows),), generator=draw)]
        ids, parts = torch.cat([rows, moved]).unique(dim=0), list[dict[str, Tensor]]()
        for some in ids.split(32):
            parts.append({name: whole[:, -1].float().cpu() for name, whole in lens.run(some, sites=names).items()})
            run.progress("margins", 32 * len(parts), len(ids), "prompts")
        for name in names:
            states = torch.cat([part[name] for part in parts])
            unit = float(states.double().var(0, unbiased=False).sum().sqrt())
            base: dict[str, Any] = {"test": self.name, "site": name, "defence": "none", "knows": "bound", "count": len(ids)}
            for quantity, values in zip(("margin", "co-Lipschitz"), nearest_of(states, ids), strict=True):
                least, (value, inside) = float(values.min()) / unit, low_quantile(values / unit)
                found.append(TrialRow(**base, setting="least", quantity=quantity, value=least, interval=(0.0, least)))
                found.append(TrialRow(**base, setting="5 % quantile", quantity=quantity, value=value, interval=inside))
            for form in FORMATS:
                share, inside = collisions(states, form)
                found.append(TrialRow(**base, setting=form, quantity="prompts with a twin", value=share, interval=inside))
        return found
