"""The probe `alignment`: alignment of pairs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup
from headscan.model import Lens
from headscan.model.inputs import pooled
from headscan.model.sentence import Pooling, SentenceHead
from headscan.run import BadInput
from headscan.statistics.uncertainty import Cells, Floats, with_intervals


def sentence_states(
    lens: Lens,
    sentences: Sequence[str],
    *,
    site: str | None = None,
    special: bool = True,
    batch: int = 64,
) -> Floats:
    """The mean over its tokens of each sentence's states at a site, float64 [n, d]; by default the
    last default site.

    `special`: with the tokenizer's own added tokens ([CLS] and the like), which then count in the
    mean. Sentences are grouped by length, so nothing is padded; longer ones than the context are
    cut. Raises BadInput for a sentence without tokens. Cost: one forward pass.
    """
    ids = sentence_ids(lens, sentences, special=special)
    if empty := [k for k, tokens in enumerate(ids) if not tokens]:
        raise BadInput(f"Sentence {empty[0]} has no tokens.")
    read_site = lens.match(site)[-1] if site else lens.default_sites[-1]
    return mean_states(lens, ids, [read_site], batch=batch)[read_site]


def sentence_ids(lens: Lens, sentences: Sequence[str], *, special: bool = True) -> list[list[int]]:
    """The tokens of each sentence, cut to the context; a sentence may come out empty."""
    tokenizer = lens.require_tokenizer()
    return [
        tokenizer.encode(sentence, add_special_tokens=special)[: lens.context_length]
        for sentence in sentences
    ]


def mean_states(
    lens: Lens,
    ids: Sequence[Sequence[int]],
    sites: Sequence[str],
    *,
    batch: int = 64,
    pooling: Pooling | Callable[[torch.Tensor], torch.Tensor] = "mean",
) -> dict[str, Floats]:
    """The mean over its tokens of each text's states (or the first or last one, or another
    `pooling` of states [B, T, width]), by site, float64 [n, width]; texts are lists of token ids.
    """
    groups: dict[int, list[int]] = {}
    for k, tokens in enumerate(ids):
        groups.setdefault(len(tokens), []).append(k)
    means = {site: np.zeros((len(ids), lens.width(site))) for site in sites}
    for members in groups.values():
        for start in range(0, len(members), batch):
            part = members[start : start + batch]
            rows = torch.tensor([list(ids[k]) for k in part], device=lens.device)

            def take(site: str, states: torch.Tensor, part: list[int] = part) -> None:
                doubled = states.detach().double()
                vectors = pooled(doubled, pooling) if isinstance(pooling, str) else pooling(doubled)
                if vectors.shape[1] != means[site].shape[1]:
                    means[site] = np.zeros((len(ids), vectors.shape[1]))
                means[site][part] = vectors.cpu().numpy()

            lens.run(rows, sites=sites, each=take)
    return means


def encode(lens: Lens, head: SentenceHead, sentences: Sequence[str]) -> Floats:
    """The vectors that a sentence encoder is shipped for, float64 [n, width]: those of
    sentence-transformers' `encode`.
    """
    cut = {} if head.length is None else {"truncation": True, "max_length": head.length}
    ids = [lens.require_tokenizer().encode(sentence, **cut) for sentence in sentences]
    site = lens.default_sites[-1]
    return mean_states(lens, ids, [site], pooling=head)[site]


def aligned(one: Floats, other: Floats, *, blocks: int = 16) -> Cells:
    """Alignment of the pairs of rows [n, d] against that of all mismatched pairs, with 95 %
    intervals.

    `alignment` E‖x̂ − ŷ‖² of the pairs, in [0, 4]; `unrelated`, the null: the same over all n(n −
    1) shuffled pairs, each text with every partner but its own, exact (a narrow cone makes
    everything look aligned); `relative`, their ratio: 0 for perfect pairs, 1 for pairs no nearer
    than chance. Intervals from blocks of pairs left out. From Σx̂, Σŷ and Σx̂·ŷ of each block: ‖x̂
    − ŷ‖² = 2 − 2x̂·ŷ, and Σ_{i≠j} x̂_i·ŷ_j = Σx̂·Σŷ − Σx̂·ŷ. Cost O(nd). Pairs with a zero vector
    are left out; None below two pairs.

    >>> x = np.eye(4); found = aligned(x, x)
    >>> found["alignment"], found["unrelated"], found["relative"]
    (0.0, 2.0, 0.0)
    """
    lengths = [np.linalg.norm(rows, axis=1) for rows in (one, other)]
    nonzero = (lengths[0] > 0) & (lengths[1] > 0)
    x, y = (
        rows[nonzero] / length[nonzero, None]
        for rows, length in zip((one, other), lengths, strict=True)
    )
    parts = [part for part in np.array_split(np.arange(len(x)), blocks) if len(part)]
    sums = [(float(len(p)), x[p].sum(0), y[p].sum(0), float((x[p] * y[p]).sum())) for p in parts]
    return from_pair_sums((float(len(x)), x.sum(0), y.sum(0), float((x * y).sum())), sums)


PairSums = tuple[Any, Any, Any, Any]
"""Number of pairs, Σx̂, Σŷ and Σx̂·ŷ."""


def from_pair_sums(total: PairSums, parts: Sequence[PairSums]) -> Cells:
    """`aligned` from the sums of all pairs and of blocks of them."""

    def values(n: float, x: Any, y: Any, cosine: float) -> dict[str, float | None]:
        if n < 1.5:
            return dict.fromkeys(("alignment", "unrelated", "relative"))
        paired = max(0.0, 2 - 2 * cosine / n)
        unrelated = max(0.0, 2 - 2 * (float(x @ y) - cosine) / (n * (n - 1)))
        return {
            "alignment": paired,
            "unrelated": unrelated,
            "relative": paired / unrelated if unrelated > 1e-12 else None,
        }

    estimates = values(*total)
    left_out = [
        values(*(total_sum - mine for total_sum, mine in zip(total, part, strict=True)))
        for part in parts
    ]
    bounds = {"alignment": (0.0, 4.0), "unrelated": (0.0, 4.0), "relative": (0.0, None)}
    return {**estimates} | with_intervals(
        estimates, left_out, [part[0] for part in parts], bounds, running=False
    )


class AlignmentProbe(Probe):
    """Pairs of texts that mean the same."""

    words = ProbeWords(
        name="alignment",
        title="Alignment of pairs",
        group="alignment",
        sentence="Do texts that mean the same lie together? Mean states of pairs: synonyms (the "
        "shipped list), or the files of --pairs: translations, paraphrases. Beside them "
        "all mismatched pairs: in a narrow cone everything is near.",
        literature="Wang and Isola 2020, arXiv:2005.10242",
        position="A text's first token counts in its mean, as it does in use.",
        docs="sphere.md",
        function="headscan.measures.pairs.aligned",
        picture="pairs",
        order=6,
        fields={
            "set": Field("pairs", "Which pairs."),
            "pairs": Field(
                "number",
                "Pairs, at most the first 1,000; those with a text that gives no tokens are left "
                "out.",
                range=(0, None),
                unit="pairs",
                interval="a count",
            ),
            "alignment": Field(
                "alignment",
                "Mean squared distance of the unit vectors of a pair; 0 is the same direction.",
                "E‖x̂ − ŷ‖²",
                range=(0, 4),
                undefined="no two pairs",
            ),
            "unrelated": Field(
                "shuffled",
                "The null: the same over all mismatched pairs, exact.",
                "E_{i≠j}‖x̂_i − ŷ_j‖²",
                range=(0, 4),
                undefined="no two pairs",
            ),
            "relative": Field(
                "alignment over shuffled",
                "Their ratio: 0 for perfect pairs, 1 for pairs no nearer than chance.",
                range=(0, None),
                undefined="no two pairs, or all texts in one direction",
                plotted=True,
            ),
        },
    )
    PAIRS = 1000

    def cost(self, setup: ProbeSetup) -> Cost:
        parameters = sum(p.numel() for p in setup.lens.model.parameters())
        tokens = sum(60.0 * min(self.PAIRS, len(pairs)) for pairs in setup.pairs)
        return Cost(2.0 * parameters * tokens, 32.0 * self.PAIRS * setup.lens.width(setup.last))

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sites = list(data.clouds)
        rows: list[Cells] = []
        states: dict[str, dict[str, np.ndarray]] = {}
        for pairs in (pairs.first(self.PAIRS) for pairs in setup.pairs):
            texts = [*pairs.one, *pairs.other]
            ids = dict(zip(texts, sentence_ids(setup.lens, texts), strict=True))
            complete = [
                k
                for k, (a, b) in enumerate(zip(pairs.one, pairs.other, strict=True))
                if ids[a] and ids[b]
            ]
            new = list(dict.fromkeys(text for text in texts if ids[text] and text not in states))
            if new:
                means = mean_states(setup.lens, [ids[text] for text in new], sites)
                states |= {
                    text: {site: means[site][k] for site in sites} for k, text in enumerate(new)
                }
            for site in sites:
                row: Cells = {"site": site, "set": pairs.name, "pairs": len(complete)}
                if len(complete) > 1:
                    first, second = (
                        np.stack([states[side[k]][site] for k in complete])
                        for side in (pairs.one, pairs.other)
                    )
                    row |= aligned(first, second)
                rows.append(dict.fromkeys(self.fields) | row)
        return rows
