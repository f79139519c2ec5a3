"""The probe `alignment`: the distance of pairs of texts that mean the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup
from headscan.model import Lens
from headscan.model.inputs import pooled
from headscan.model.sentence import Pooling, SentenceHead
from headscan.run import BadInput
from headscan.statistics.uncertainty import Bounds, Cells, Floats, with_intervals


def sentence_states(
    lens: Lens,
    sentences: Sequence[str],
    *,
    site: str | None = None,
    special: bool = True,
    batch: int = 64,
) -> Floats:
    """Return the mean over its tokens of each sentence's states at a site, float64 [n, d].

    By default the site is the last default site. `special`: with the tokenizer's own added tokens
    ([CLS] and the like), which then count in the mean. Sentences are grouped by length, so nothing
    is padded; longer ones than the context are cut. Raises BadInput for a sentence without tokens.
    Cost: one forward pass.
    """
    ids = sentence_ids(lens, sentences, special=special)
    for number, tokens in enumerate(ids):
        if not tokens:
            raise BadInput(f"Sentence {number} has no tokens.")
    read_site = lens.match(site)[-1] if site else lens.default_sites[-1]
    return mean_states(lens.plain, ids, [read_site], batch=batch)[read_site]


def sentence_ids(lens: Lens, sentences: Sequence[str], *, special: bool = True) -> list[list[int]]:
    """Return the tokens of each sentence, cut to the context; there may be none."""
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
    """Return the mean over its tokens of each text's states, by site, float64 [n, width].

    Texts are lists of token ids. `pooling` may also name the first or last state, or be a function
    of states [B, T, width].
    """
    texts_by_length: dict[int, list[int]] = {}
    for text, tokens in enumerate(ids):
        texts_by_length.setdefault(len(tokens), []).append(text)
    means = {site: np.zeros((len(ids), lens.width(site))) for site in sites}

    def add(site: str, states: torch.Tensor, texts: list[int]) -> None:
        doubled = states.detach().double()
        vectors = pooled(doubled, pooling) if isinstance(pooling, str) else pooling(doubled)
        if vectors.shape[1] != means[site].shape[1]:
            means[site] = np.zeros((len(ids), vectors.shape[1]))
        means[site][texts] = vectors.cpu().numpy()

    for members in texts_by_length.values():
        for start in range(0, len(members), batch):
            texts = members[start : start + batch]
            rows = torch.tensor([list(ids[text]) for text in texts], device=lens.device)
            lens.run(rows, sites=sites, each=partial(add, texts=texts))
    return means


def encode(lens: Lens, head: SentenceHead, sentences: Sequence[str]) -> Floats:
    """Return the vectors of a sentence encoder, float64 [n, width].

    They are those of sentence-transformers' `encode`.
    """
    cut = {} if head.length is None else {"truncation": True, "max_length": head.length}
    tokenizer = lens.require_tokenizer()
    ids = []
    for sentence in sentences:
        text = "".join(head.reading.prepared([sentence]))
        ids.append(tokenizer.encode(text, **cut))
    site = lens.default_sites[-1]
    return mean_states(lens.plain, ids, [site], pooling=head)[site]


@dataclass(frozen=True)
class PairSums:
    """The number of pairs, Σx̂ and Σŷ [d], and Σx̂·ŷ."""

    pairs: float
    first: Floats
    second: Floats
    cosine: float

    @classmethod
    def of(cls, x: Floats, y: Floats) -> "PairSums":
        """Return the sums of pairs of unit vectors [n, d]."""
        return cls(float(len(x)), x.sum(0), y.sum(0), float((x * y).sum()))

    def without(self, part: "PairSums") -> "PairSums":
        """Return these sums less those of a part of the pairs."""
        return PairSums(
            self.pairs - part.pairs,
            self.first - part.first,
            self.second - part.second,
            self.cosine - part.cosine,
        )

    def alignment(self) -> dict[str, float | None]:
        """Return `alignment`, `unrelated` and `relative` (see `aligned`)."""
        n = self.pairs
        if n < 1.5:
            return dict.fromkeys(("alignment", "unrelated", "relative"))
        mismatched = float(self.first @ self.second) - self.cosine
        paired = max(0.0, 2 - 2 * self.cosine / n)
        unrelated = max(0.0, 2 - 2 * mismatched / (n * (n - 1)))
        return {
            "alignment": paired,
            "unrelated": unrelated,
            "relative": paired / unrelated if unrelated > 1e-12 else None,
        }


BOUNDS: dict[str, Bounds] = {
    "alignment": (0.0, 4.0),
    "unrelated": (0.0, 4.0),
    "relative": (0.0, None),
}
"""The ranges of the numbers of `PairSums.alignment`."""


def aligned(rows: Floats, partners: Floats, *, blocks: int = 16) -> Cells:
    """Return the alignment of pairs of rows [n, d] and that of all mismatched pairs, with 95 %
    intervals.

    `alignment` E‖x̂ − ŷ‖² of the pairs, in [0, 4]; `unrelated`, the null: the same over all n(n −
    1) shuffled pairs, each text with every partner but its own, exact (a narrow cone makes
    everything look aligned); `relative`, their ratio: 0 for perfect pairs, 1 for pairs no nearer
    than chance. Intervals from blocks of pairs left out. From Σx̂, Σŷ and Σx̂·ŷ of each block: ‖x̂
    − ŷ‖² = 2 − 2x̂·ŷ, and Σ_{i≠j} x̂_i·ŷ_j = Σx̂·Σŷ − Σx̂·ŷ. Cost O(nd). Pairs with a zero vector
    are left out; None below two pairs.

    >>> x = np.eye(4)
    >>> cells = aligned(x, x)
    >>> cells["alignment"], cells["unrelated"], cells["relative"]
    (0.0, 2.0, 0.0)
    """
    lengths = np.linalg.norm(rows, axis=1)
    partner_lengths = np.linalg.norm(partners, axis=1)
    nonzero = (lengths > 0) & (partner_lengths > 0)
    x = rows[nonzero] / lengths[nonzero, None]
    y = partners[nonzero] / partner_lengths[nonzero, None]
    parts = [
        PairSums.of(x[block], y[block])
        for block in np.array_split(np.arange(len(x)), blocks)
        if len(block)
    ]
    total = PairSums.of(x, y)
    estimates = total.alignment()
    left_out = [total.without(part).alignment() for part in parts]
    sizes = [part.pairs for part in parts]
    return {**estimates} | with_intervals(estimates, left_out, sizes, BOUNDS, running=False)


class AlignmentProbe(Probe):
    """The alignment of pairs of texts that mean the same."""

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
        states: dict[str, dict[str, Floats]] = {}
        for all_pairs in setup.pairs:
            pairs = all_pairs.first(self.PAIRS)
            states |= _new_states(setup.lens, sites, [*pairs.one, *pairs.other], states)
            complete = [
                (text, partner)
                for text, partner in zip(pairs.one, pairs.other, strict=True)
                if text in states and partner in states
            ]
            for site in sites:
                row: Cells = dict.fromkeys(self.fields)
                row |= {"site": site, "set": pairs.name, "pairs": len(complete)}
                if len(complete) > 1:
                    first = np.stack([states[text][site] for text, _ in complete])
                    second = np.stack([states[partner][site] for _, partner in complete])
                    row |= aligned(first, second)
                rows.append(row)
        return rows


def _new_states(
    lens: Lens, sites: Sequence[str], texts: Sequence[str], known: Mapping[str, object]
) -> dict[str, dict[str, Floats]]:
    """Return the mean states, by text and site, of the texts that have tokens and are not known."""
    ids = dict(zip(texts, sentence_ids(lens, texts), strict=True))
    new = [text for text in ids if ids[text] and text not in known]
    if not new:
        return {}
    means = mean_states(lens.plain, [ids[text] for text in new], sites)
    return {text: {site: means[site][k] for site in sites} for k, text in enumerate(new)}
