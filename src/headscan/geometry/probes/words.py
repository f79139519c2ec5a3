"""The probe `words`: words in context."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import WITHOUT, Cells, Field, ProbeWords, number
from headscan.geometry.probe import Probe, suffixed, tally_row
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup
from headscan.geometry.words import contexts, maximum_explainable_variance, words
from headscan.statistics import ClassSums, ContextTally, SiteBatch
from headscan.statistics.accumulator import Accumulator

__all__ = ["WordsProbe"]


class WordsProbe(Probe):
    """How contextual are the vectors?"""

    needs = "tokens"
    words = ProbeWords(
        name="words", title="Words in context", group="words",
        sentence="How contextual are the vectors? Similarity within and between windows and of a word with itself, "
        "less what any two tokens share.",
        literature="Ethayarajh 2019, arXiv:1909.00512",
        position="Every number also without position 0 of each window.", docs="words.md",
        function="headscan.geometry.words.contexts", sample=2000, order=3, fields={
            "within_cosine": Field("within a window", "Mean cosine of two tokens of one window.",
                "(Σ‖s_w‖² − N)/(Σn_w² − N)", (-1, 1), undefined="fewer than two vectors that are not zero", first=True),
            "between_cosine": Field("between windows",
                "Mean cosine of two tokens of different windows: the baseline.", "(‖Σs_w‖² − Σ‖s_w‖²)/(N² − Σn_w²)",
                (-1, 1), undefined="fewer than two windows", first=True),
            "within_adjusted": Field("within, adjusted", "Within less between: what a shared context adds.",
                range=(-2, 2), undefined="fewer than two windows", first=True, plotted=True),
            "intra_similarity": Field("intra-sentence similarity",
                "Mean cosine of a token to the mean vector of its window.", "mean cos(s̄, h_i)", (0, 1),
                undefined="fewer than two vectors that are not zero", first=True),
            "intra_adjusted": Field("intra, adjusted", "The same less the baseline.", range=(-1, 2),
                undefined="fewer than two windows", first=True, plotted=True),
            "self_similarity": Field("self-similarity",
                "Mean cosine of two occurrences of the same token, averaged over tokens with at least 5.",
                "(‖Σû‖² − n)/(n(n − 1))", (-1, 1), undefined="no token occurs 5 times", first=True),
            "self_adjusted": Field("self-similarity, adjusted",
                "The same less the baseline: how much of the word survives its context.", range=(-2, 2),
                undefined="no token occurs 5 times, or fewer than two windows", first=True, plotted=True),
            "words": Field("words", "Token types with at least 5 occurrences (at most 8,192 types are followed).",
                range=(0, None), unit="types", interval="a count", first=True),
            "mev": Field("MEV",
                "Maximum explainable variance: a word's energy along its one best direction, on the sample (uncentred).",
                "σ₁²/Σσ²", (0, 1), undefined="no token occurs 5 times in the sample", first=True),
            "mev_adjusted": Field("MEV, adjusted",
                "The same less that of as many vectors drawn without regard to the word.", range=(-1, 1),
                undefined="no token occurs 5 times in the sample", first=True, plotted=True),
            "mev_words": Field("words in MEV", "Token types it is averaged over.", range=(0, None), unit="types",
                interval="a count", first=True),
        },
    )  # fmt: skip

    def cost(self, setup: ProbeSetup) -> Cost:
        types = min(8192, setup.source.vocabulary)
        return Cost(0, sum(16.0 * types * setup.width(site) for site in setup.sites))

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        found: dict[str, Accumulator] = {}
        for site in setup.sites:
            width = setup.width(site)
            found[site] = ContextTally(width, setup.device)
            for part in ("types", "first"):
                found[f"{site}|{part}"] = ClassSums(width, limit=8192, device=setup.device)
        return found

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        if isinstance(accumulator, ContextTally):
            accumulator.update(batch)
            return
        assert isinstance(accumulator, ClassSums)
        # Position 0 on its own: few rows, to be taken away from all.
        part = slice(None) if key.endswith("|types") else slice(0, batch.lead)
        flat = (-1, accumulator.width)
        accumulator.add(
            batch.ids[:, part].reshape(-1), batch.norms[:, part].reshape(-1), batch.rows[:, part].reshape(flat),
            batch.unit[:, part].reshape(flat),
        )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows = []
        for site in data.clouds:
            tally, types = data.own[site], data.own[f"{site}|types"]
            assert isinstance(tally, ContextTally)
            assert isinstance(types, ClassSums)
            row: Cells = {"site": site, **tally_row(tally, contexts, self.fields)}
            first = data.own[f"{site}|first"]
            assert isinstance(first, ClassSums)
            row |= words(types, number(row["between_cosine"]))
            row |= suffixed(words(types.without(first), number(row[f"between_cosine{WITHOUT}"])))
            states = data.sample.get(site)
            for suffix, kept in (("", None), (WITHOUT, ~data.first)):
                if states is None:
                    row |= {f"mev{suffix}": None, f"mev_adjusted{suffix}": None, f"mev_words{suffix}": 0}
                    continue
                x, ids = states.numpy(), data.sample["id"].numpy()
                if kept is not None:
                    x, ids = x[kept], ids[kept]
                found = maximum_explainable_variance(x, ids)
                row |= suffixed(found) if suffix else found
            rows.append(row)
        return rows
