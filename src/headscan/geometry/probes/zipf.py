"""The probe `zipf`: Zipf's law of the text."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.geometry.zipf import heaps, zipf_intervals, zipf_mandelbrot

__all__ = ["ZipfProbe"]


class ZipfProbe(Probe):
    """Rank and frequency."""

    needs = "tokens"
    words = ProbeWords(
        name="zipf", title="Zipf's law of the text", group="zipf",
        sentence="How uneven is the text, in this tokenizer's tokens? Fits of Zipf-Mandelbrot to rank and "
        "frequency, of Heaps to the growth of the vocabulary.",
        literature="Mandelbrot 1953; Heaps 1978", position="The text's counts know no position.", docs="zipf.md",
        function="headscan.geometry.zipf.zipf_mandelbrot", order=7, fields={
            "tokens": Field("tokens", "Tokens counted.", range=(0, None), unit="tokens", interval="a count"),
            "types": Field("types", "Different tokens that occur.", range=(0, None), unit="types", interval="a count"),
            "zipf_exponent": Field("Zipf exponent", "a of p(r) ∝ r^−a, by maximum likelihood.", "p(r) ∝ r^−a",
                (0, None), undefined="fewer than three types, or fewer than 100 tokens"),
            "mandelbrot_exponent": Field("Mandelbrot exponent", "a with a shift of the ranks.", "p(r) ∝ (r + b)^−a",
                (0, None), undefined="fewer than three types, or fewer than 100 tokens"),
            "mandelbrot_shift": Field("Mandelbrot shift", "That shift, b.", range=(0, None), unit="ranks",
                undefined="fewer than three types, or fewer than 100 tokens"),
            "zipf_distance": Field("distance from the fit",
                "Kullback-Leibler divergence of the text from the Zipf-Mandelbrot fit.", range=(0, None),
                unit="nats a token", undefined="fewer than three types, or fewer than 100 tokens"),
            "heaps_exponent": Field("Heaps exponent", "β of V(m) = K·m^β on the expected growth.", "V(m) = K m^β",
                (0, 1), undefined="fewer than three types, or fewer than 100 tokens"),
            "heaps_constant": Field("Heaps constant", "K.", range=(0, None),
                undefined="fewer than three types, or fewer than 100 tokens"),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        c = data.counts
        row: Cells = {
            "site": "text",
            "tokens": int(c.sum()),
            "types": int((c > 0).sum()),
            **zipf_mandelbrot(c),
            **heaps(c),
        }
        return [row | zipf_intervals(data.count_parts)]
