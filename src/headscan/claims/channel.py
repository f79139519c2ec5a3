"""Claims 123 to 126: how many features, and how much noise, the channel from a token to its output bears."""

from __future__ import annotations

import numpy as np

from headscan.claims.claim import Verdict, claim
from headscan.claims.small_models import prompts, small
from headscan.flow import codebook, distances, noise_accuracy, threshold, width_sweep

SOURCE = "Badger, Language Modeling and Discrete Encodings, noise on a discrete channel"
TRAINED = 300


@claim(123, "One feature decides: 2202 features of 4096 give all tokens of a trained layer, 2201 none.", SOURCE)
def sharp(seed: int) -> Verdict:
    """The threshold by search and start; what one feature less than enough does."""
    lens, ids = small(seed=seed), prompts(seed, 2)
    found = {search: threshold(lens, "block.0", ids, search) for search in ("exact", "zeros", "adam", "noise")}
    numbers: dict[str, float | None] = {f"features_{search}": one.width for search, one in found.items()}
    best = found["adam"]
    below = best.tried.get((best.width or 0) - 1)
    numbers["accuracy_one_feature_below"] = below
    widths = [one.width for search, one in found.items() if search != "exact"]
    if found["exact"].width == 1 and len(set(widths)) > 1:
        why = "The threshold is that of a search from a start: starts differ, and exact search needs one feature."
        return Verdict("artefact", why, numbers)
    sharp_edge = below is not None and below < 0.5
    return Verdict(
        "reproduced" if sharp_edge else "not reproduced", "Accuracy one feature below the threshold.", numbers
    )


@claim(124, "With attention alone the threshold is lower (2083).", SOURCE)
def attention(seed: int) -> Verdict:
    """The threshold of Adam with and without the feed-forward part."""
    lens, ids = small(seed=seed), prompts(seed, 2)
    whole = threshold(lens, "block.0", ids, "adam").width
    alone = threshold(lens, "block.0", ids, "adam", only="attention").width
    numbers = {"features_whole": whole, "features_attention": alone, "features_exact": threshold(
        lens, "block.0", ids, "exact", only="attention").width}  # fmt: skip
    lower = alone is not None and (whole is None or alone < whole)
    return Verdict(
        "reproduced" if lower else "not reproduced", "By Adam; exact search needs one feature in both.", numbers
    )


@claim(125, "The number of features decides, not which: [1000:3083] serves as [:2083], [1000:2083] does not.", SOURCE)
def which(seed: int) -> Verdict:
    """Accuracy of contiguous and random features of the same number, at a quarter, a half and all of the width."""
    lens, ids = small(seed=seed), prompts(seed, 2)
    rows = width_sweep(lens, "block.0", ids, (16, 32, 64), searches=("adam",), only="attention")
    numbers = {f"{row['subset']}_{row['width']}": row["accuracy"] for row in rows}
    apart = max(abs(numbers[f"contiguous_{w}"] - numbers[f"random_{w}"]) for w in (16, 32, 64))
    alike = apart <= 0.25
    return Verdict("reproduced" if alike else "not reproduced", "Random features serve as contiguous ones.", numbers)


@claim(126, "Training makes representation less exact, and accuracy drops abruptly as the channel narrows.", SOURCE)
def training(seed: int) -> Verdict:
    """Maximum-likelihood decoding through noise of half a spread, untrained, half trained and trained; the drop's shape."""
    numbers: dict[str, float] = {}
    for steps in (0, TRAINED // 3, TRAINED):
        book = codebook(small(steps=steps, seed=seed), "block.0", prompts(seed, 1)[0, :-1].tolist())
        near = distances(book)
        for row in noise_accuracy(book, noises=(0.5,), widths=(2, 4, 8, 16, 32, 64), seed=seed):
            numbers[f"accuracy_{row['width']}_features_step_{steps}"] = row["accuracy"]
        numbers |= {
            f"nearest_median_step_{steps}": near["median"],
            f"directions_step_{steps}": near["participation_ratio"],
        }
    # 400 tokens a cell: a share is known to about 0.025, so a loss counts from twice that.
    widths = (2, 4, 8, 16, 32, 64)
    loss = max(
        numbers[f"accuracy_{w}_features_step_0"] - numbers[f"accuracy_{w}_features_step_{TRAINED}"] for w in widths
    )
    numbers["largest_loss_by_training"] = loss
    less = loss > 0.05
    curve = np.array([numbers[f"accuracy_{w}_features_step_0"] for w in widths])
    numbers["largest_drop_by_halving"] = float(np.diff(curve).max())
    why = (
        (
            "Trained outputs bear less noise."
            if less
            else "So little training does not cost accuracy at the same relative noise."
        )
        + " The drop is a smooth curve about Shannon's width, not an edge; noiseless outputs stay distinct. Over checkpoints "
        "of a real model: headscan flow MODEL --prompt TEXT --channel --null."
    )
    return Verdict("reproduced" if less else "not reproduced", why, numbers)
