"""What a scan will take in memory and time, said before anything is read but the beginning of the text; for `--dry-run`."""

from __future__ import annotations

from dataclasses import dataclass

from headscan.geometry.choose import choose
from headscan.geometry.estimate import Memory
from headscan.geometry.settings import Scanning
from headscan.run import takes
from headscan.states import SourcesLike, given_sources
from headscan.states.expected import Estimate, ExpectedReader, expected_reader, operations_a_second

__all__ = ["ScanEstimate", "estimate_scan"]


@dataclass(frozen=True, kw_only=True)
class ScanEstimate(Estimate):
    """What one source of a scan will take; `bound` is the bound of what is held beside the model, site by site."""

    bound: Memory

    @property
    def held(self) -> str:
        """See `Memory`."""
        return str(self.bound)


@takes(Scanning)
def estimate_scan(sources: SourcesLike, settings: Scanning) -> list[ScanEstimate]:
    """An estimate for each source of a scan with these options, without reading weights and without writing anything.

    Raises BadInput as `scan` does for what can be known without the weights.

    >>> one, = estimate_scan("gpt-vanilla", "stories", max_tokens=1280, context=64)
    >>> one.tokens, one.weights > 1e6, one.seconds > 0
    (1280, True, True)
    """
    rate = operations_a_second()
    return [_estimate(expected_reader(one, settings), settings, rate) for one in given_sources(sources)]


def _estimate(reader: ExpectedReader, settings: Scanning, rate: float) -> ScanEstimate:
    """Second moments take d² in float64, at half the speed, and as much again."""
    bound = Memory.of(
        reader.widths, context=settings.context, batch=reader.batch, tokens=reader.tokens,
        measures=len(choose(settings.measures)[0]),
    )  # fmt: skip
    forward = reader.forward * (2 if settings.null else 1)
    each = forward + sum(4.0 * width**2 for width in reader.widths.values())
    finish = sum(20.0 * width**3 for width in reader.widths.values())
    return ScanEstimate(
        reader.name, reader.tokens, reader.weights, bound.total, (each * reader.counted + finish) / rate, bound=bound
    )
