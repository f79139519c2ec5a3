"""Margins of layers: the distance of two prompts' states, and rounding that makes them equal."""

from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float, Int
from scipy.stats import binom
from torch import Tensor

from headscan.leaks.channels import sites_of
from headscan.leaks.number_formats import read_format
from headscan.leaks.plan import windows_of
from headscan.leaks.registry import TESTS, LeakTest
from headscan.leaks.result import TrialRow
from headscan.leaks.rows import share_interval
from headscan.leaks.settings import PrivacySettings
from headscan.model.lens import Lens
from headscan.run import BadInput, Interval, Option, Run

FORMATS = ("fp32", "bf16", "int8", "int4")
FEWEST = 20  # prompts
BATCH = 32


def nearest_of(
    states: Float[Tensor, "N w"], ids: Int[Tensor, "N T"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return each prompt's least distance to another, and its least ratio of distances.

    The ratio is of the states' distance to the share of tokens that differ.
    """
    distances = torch.cdist(
        states.double(), states.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    differing = torch.cdist(ids.double(), ids.double(), p=0) / ids.shape[1]
    distances = distances.masked_fill(differing == 0, torch.inf)
    ratios = distances / differing.clamp_min(1e-9)
    return distances.amin(1), ratios.amin(1)


def low_quantile(values: Float[Tensor, " N"], level: float = 0.05) -> tuple[float, Interval]:
    """Return a low quantile of a sample, with its 95 % interval.

    The interval lies between two order statistics and holds for every distribution.

    >>> low_quantile(torch.arange(100.0))
    (5.0, (0.0, 10.0))
    """
    ordered = values.sort().values.tolist()
    count = len(values)
    low, high = (int(binom.ppf(end, count, level)) for end in (0.025, 0.975))
    interval = (ordered[low - 1] if low else 0.0, ordered[min(high, count - 1)])
    return ordered[int(level * count)], interval


def collisions(states: Float[Tensor, "N w"], form: str) -> tuple[float, Interval]:
    """Return the share of prompts whose states a number format makes equal to another's.

    Its 95 % interval, in [0, 1], comes with it.
    """
    counts = read_format(form)(states).unique(dim=0, return_counts=True)[1]
    share = 1 - int((counts == 1).sum()) / len(states)
    return share, share_interval(share, len(states))


@TESTS.register("margins")
class Margins(LeakTest):
    """Separation margin and co-Lipschitz constant of a layer's last states, and prompts that
    rounding makes equal.

    The least distance between the states of two prompts, and its least ratio to the share of tokens
    in which they differ (von Strauss, arXiv:2511.14808), in the root of the states' total variance.
    Prompts are windows of the text, and each again with one token exchanged. The least of a sample
    bounds that of all prompts from above; a change below half of it confuses none.
    """

    releases: ClassVar[tuple[str, ...]] = ("states",)
    prompts: Annotated[int, Option("Prompts of the text.", low=20, high=4000)] = 300

    def measure(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> list[TrialRow]:
        windows = windows_of(texts, self.prompts, settings.length)
        sites = sites_of(lens, settings)
        if len(windows) < FEWEST:
            raise BadInput(
                f"Margins need {FEWEST} prompts of {settings.length} tokens; the text has "
                f"{len(windows)}."
            )
        exchanged = _with_one_exchanged(windows, settings.seed)
        ids = torch.cat([windows, exchanged]).unique(dim=0)
        parts: dict[str, list[Tensor]] = {site: [] for site in sites}
        done = 0
        for batch in ids.split(BATCH):
            for site, states in lens.run(batch, sites=sites).items():
                parts[site].append(states[:, -1].float().cpu())
            done += BATCH
            run.progress("margins", done, len(ids), "prompts")
        rows: list[TrialRow] = []
        for site in sites:
            rows += _margin_rows(self.name, site, torch.cat(parts[site]), ids)
        return rows


def _with_one_exchanged(windows: Int[Tensor, "N T"], seed: int) -> Int[Tensor, "N T"]:
    """Return each window with one token exchanged for one of the text."""
    generator = torch.Generator().manual_seed(seed)
    count, length = windows.shape
    positions = torch.randint(length, (count,), generator=generator)
    sources = torch.randint(windows.numel(), (count,), generator=generator)
    exchanged = windows.clone()
    exchanged[torch.arange(count), positions] = windows.flatten()[sources]
    return exchanged


def _margin_rows(test: str, site: str, states: Tensor, ids: Tensor) -> list[TrialRow]:
    """Return the rows of one site, from the states [N, w] of prompts [N, T]."""
    unit = float(states.double().var(0, unbiased=False).sum().sqrt())
    base = TrialRow.blank(test, site, knows="bound", count=len(ids))
    rows = []
    for quantity, values in zip(("margin", "co-Lipschitz"), nearest_of(states, ids), strict=True):
        row = replace(base, quantity=quantity)
        least = float(values.min()) / unit
        rows.append(replace(row, setting="least", value=least, interval=(0.0, least)))
        quantile, interval = low_quantile(values / unit)
        rows.append(replace(row, setting="5 % quantile", value=quantile, interval=interval))
    row = replace(base, quantity="prompts with a twin")
    for form in FORMATS:
        share, interval = collisions(states, form)
        rows.append(replace(row, setting=form, value=share, interval=interval))
    return rows
