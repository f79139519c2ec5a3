"""Claims 22 to 27: attribution by gradients and occlusion (Badger, "Language Modeling and Discrete Encodings")."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from headscan.attribution import AttributionTarget, Engine, TargetStep, attribute, gradient_x_input
from headscan.attribution.faithfulness import Faithfulness
from headscan.claims.claim import Verdict, claim
from headscan.claims.small_models import prompts, small
from headscan.model import Lens

SOURCE = "Badger, Language Modeling and Discrete Encodings, input attribution"
TRAINED = 300


def _setting(seed: int) -> tuple[Lens, list[int]]:
    lens = small(steps=TRAINED, seed=seed)
    ids: list[int] = prompts(seed, 1)[0].tolist()
    return lens, ids


def _judged(lens: Lens, seed: int, method: str) -> list[Faithfulness]:
    """How faithful a method's maps of eight prompts are."""
    found = [
        attribute(lens, ids.tolist(), method=method, signed=False, substitute="mean").faithfulness
        for ids in prompts(seed, 8)
    ]
    return [one for one in found if one is not None]


@claim(22, "The gradient of the output times the input gives a saliency for each token.", SOURCE)
def gradient(seed: int) -> Verdict:
    """v = |grad O| * a by its definition, with the sum of all last logits for O, against finite differences."""
    lens, ids = _setting(seed)
    engine = Engine(lens)
    embeds = engine.embed(torch.tensor(ids))
    target = AttributionTarget("all", (TargetStep(len(ids) - 1, 0),))
    signed = gradient_x_input(engine, embeds, target)[0]
    small_step = 1e-2
    slopes = []
    for place in range(len(ids)):
        rows = embeds.repeat(2, 1, 1)
        rows[0, place] *= 1 + small_step
        rows[1, place] *= 1 - small_step
        sums = engine.logits(rows, [len(ids) - 1]).double().sum((-1, -2))
        slopes.append(float(sums[0] - sums[1]) / (2 * small_step))
    apart = float(np.abs(signed - slopes).max() / np.abs(slopes).max())
    numbers = {"largest_difference_from_finite_differences": apart}
    return Verdict("reproduced" if apart < 0.02 else "not reproduced", "It is the slope along each embedding.", numbers)


@claim(
    23, "Replacing a token and taking the L1 distance of the outputs measures its importance, one pass a token.", SOURCE
)
def occlusion(seed: int) -> Verdict:
    """The distances by one pass a token and by shared prefixes."""
    lens, ids = _setting(seed)
    found = np.array(attribute(lens, ids, method="occlusion", target="all", substitute=0, faithfulness=False).scores)
    with torch.no_grad():
        last = lens.model(input_ids=torch.tensor([ids])).logits[0, -1]
        loop = [
            float((lens.model(input_ids=torch.tensor([[*ids[:k], 0, *ids[k + 1 :]]])).logits[0, -1] - last).abs().sum())
            for k in range(len(ids))
        ]
    apart = float(np.abs(found - loop).max() / max(loop))
    return Verdict(
        "reproduced" if apart < 1e-4 else "not reproduced",
        "The same numbers need no whole pass a token: rows that share a prefix share its keys and values.",
        {"largest_relative_difference": apart},
    )


@claim(24, "The mean of the two normalised measures combines the information of both.", SOURCE)
def combined(seed: int) -> Verdict:
    """Whether the mean is more faithful than either part, by the area under the deletion curve, over eight prompts."""
    lens = small(steps=TRAINED, seed=seed)
    methods = ("gradient-x-input", "occlusion", "combined")
    areas = {method: [one.deletion.area for one in _judged(lens, seed, method)] for method in methods}
    means = {method: float(np.mean(values)) for method, values in areas.items()}
    better = means["combined"] < min(means["gradient-x-input"], means["occlusion"])
    why = "The published code adds occlusion to itself; here the two are averaged as the text says. "
    why += "The mean beats both parts." if better else "The mean does not beat the better of its parts."
    return Verdict(
        "reproduced" if better else "not reproduced", why, {f"deletion_area_{k}": v for k, v in means.items()}
    )


@claim(25, "A highlighter of the text shows which tokens matter.", SOURCE)
def highlighter(seed: int) -> Verdict:
    """The published page puts tokens into HTML unescaped; the same tokens through this package's page."""
    lens, ids = _setting(seed)
    result = attribute(lens, ids, method="occlusion", substitute=0, faithfulness=False)
    page = replace(result, tokens=["<s>", "<script>", "'", '"', "␣a", "⏎"])._repr_html_()
    lost = sum(word in page for word in ("<s>", "<script>"))
    return Verdict(
        "reproduced" if lost == 0 else "not reproduced",
        "Reproduced with escaping; as published, a token such as <s> vanishes and a script would run.",
        {"unescaped_tokens": lost, "tokens_shown": page.count("title=")},
    )


@claim(
    26, "Logits from embeddings equal logits from ids, so gradients on embeddings explain the real prediction.", SOURCE
)
def same_logits(seed: int) -> Verdict:
    """The largest relative difference between the two passes."""
    lens, ids = _setting(seed)
    with torch.no_grad():
        first = lens.model(input_ids=torch.tensor([ids])).logits
        second = lens.model(inputs_embeds=lens.input_embeddings[torch.tensor([ids])]).logits
    apart = float((first - second).abs().max() / first.abs().max())
    return Verdict(
        "reproduced" if apart < 1e-5 else "not reproduced",
        "Equal up to rounding; the published exact equality breaks between kernels and precisions.",
        {"largest_relative_difference": apart},
    )


@claim(27, "In larger models the gradient gives useful information about which tokens matter.", SOURCE)
def useful(seed: int) -> Verdict:
    """Deletion by gradient x input against random orders, over eight prompts of a small trained model."""
    lens = small(steps=TRAINED, seed=seed)
    found = _judged(lens, seed, "gradient-x-input")
    own = float(np.mean([one.deletion.area for one in found]))
    null = float(np.mean([one.random.deletion for one in found]))
    return Verdict(
        "reproduced" if own < null else "not reproduced",
        "Useful is taken as: tokens deleted in its order lower the prediction faster than in random order. For a larger "
        "model: headscan attribute MODEL --prompt TEXT --method gradient-x-input,occlusion.",
        {"deletion_area": own, "deletion_area_random": null},
    )
