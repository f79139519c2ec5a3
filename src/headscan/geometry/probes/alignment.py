"""The probe `alignment`: alignment of pairs."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup
from headscan.geometry.sentences import aligned, has_dropout, mean_states, sentence_ids

__all__ = ["AlignmentProbe"]


class AlignmentProbe(Probe):
    """Pairs of texts that mean the same."""

    words = ProbeWords(
        name="alignment", title="Alignment of pairs", group="alignment",
        sentence="Do texts that mean the same lie together? Mean states of pairs: synonyms (the shipped list, or "
        "the files of --pairs: translations, paraphrases), and the same text under two dropout masks. "
        "Beside them all mismatched pairs: in a narrow cone everything is near.",
        literature="Wang and Isola 2020, arXiv:2005.10242; Gao et al. 2021 (SimCSE), arXiv:2104.08821",
        position="A text's first token counts in its mean, as it does in use.", docs="sphere.md",
        function="headscan.geometry.sentences.aligned", picture="pairs", order=6, fields={
            "set": Field("pairs", "Which pairs."),
            "pairs": Field("number",
                "Pairs, at most the first 1,000; those with a text that gives no tokens are left out.",
                range=(0, None), unit="pairs", interval="a count"),
            "alignment": Field("alignment",
                "Mean squared distance of the unit vectors of a pair; 0 is the same direction.", "E‖x̂ − ŷ‖²", (0, 4),
                undefined="no two pairs, or a model without dropout"),
            "unrelated": Field("shuffled", "The null: the same over all mismatched pairs, exact.",
                "E_{i≠j}‖x̂_i − ŷ_j‖²", (0, 4), undefined="no two pairs, or a model without dropout"),
            "relative": Field("alignment over shuffled",
                "Their ratio: 0 for perfect pairs, 1 for pairs no nearer than chance.", range=(0, None),
                undefined="no two pairs, a model without dropout, or all texts in one direction", plotted=True),
        },
    )  # fmt: skip
    PAIRS, PIECES, LENGTH = 1000, 32, 32

    def cost(self, setup: ProbeSetup) -> Cost:
        parameters = sum(p.numel() for p in setup.lens.model.parameters())
        tokens = sum(60.0 * min(self.PAIRS, len(pairs)) for pairs in setup.pairs) + 2 * self.PIECES * self.LENGTH
        return Cost(2.0 * parameters * tokens, 32.0 * self.PAIRS * setup.lens.width(setup.last))

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sites = list(data.clouds)
        rows: list[Cells] = []
        states: dict[str, dict[str, np.ndarray]] = {}
        for pairs in (pairs.first(self.PAIRS) for pairs in setup.pairs):
            texts = [*pairs.one, *pairs.other]
            ids = dict(zip(texts, sentence_ids(setup.lens, texts), strict=True))
            kept = [k for k, (a, b) in enumerate(zip(pairs.one, pairs.other, strict=True)) if ids[a] and ids[b]]
            new = list(dict.fromkeys(text for text in texts if ids[text] and text not in states))
            if new:
                found = mean_states(setup.lens, [ids[text] for text in new], sites)
                states |= {text: {site: found[site][k] for site in sites} for k, text in enumerate(new)}
            for site in sites:
                row: Cells = {"site": site, "set": pairs.name, "pairs": len(kept)}
                if len(kept) > 1:
                    one, other = (np.stack([states[side[k]][site] for k in kept]) for side in (pairs.one, pairs.other))
                    row |= aligned(one, other)
                rows.append(dict.fromkeys(self.fields) | row)
        return rows + self._dropout(setup, data, sites)

    def _dropout(self, setup: ProbeSetup, data: ProbeData, sites: list[str]) -> list[Cells]:
        """Two dropout masks over pieces of the text."""
        name, width = "two dropout passes", data.windows.shape[-1]
        length = min(self.LENGTH, width)
        pieces = data.windows[:, : width - width % length].reshape(-1, length)[: self.PIECES].tolist() if length else []
        if not has_dropout(setup.lens) or len(pieces) < 2:
            why = "the model has no dropout" if pieces else "too short a text"
            return [
                dict.fromkeys(self.fields) | {"site": site, "set": name, "pairs": 0, "notes": [why]} for site in sites
            ]
        one, other = (mean_states(setup.lens, pieces, sites, dropout=seed) for seed in (1, 2))
        return [{"site": site, "set": name, "pairs": len(pieces), **aligned(one[site], other[site])} for site in sites]
