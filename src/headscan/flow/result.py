"""What `headscan flow` and `headscan channel` found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from headscan.flow.capacity import ChannelBound, NoisyDecoding, RoundedDecoding
from headscan.flow.codebooks import CodebookDistances, Threshold, WidthAccuracy
from headscan.run import BadInput, Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MatrixMeans:
    """Means of a matrix over own (i = j), earlier (i < j: of tokens before the output) and later (i > j) tokens i."""

    own: float
    of_earlier: float
    of_later: float


@dataclass(frozen=True)
class FlowSummary:
    """One site: the means of `leak`, `recoverable` and `margin` over own, earlier and later tokens; see `MatrixMeans`.

    Those of recovery are None where it was not asked for. NAME_interval: at 95 %, over prompts; None of fewer than three. A
    margin has none: it is a median, whose spread does not show by leaving prompts out.
    """

    site: str
    leak_own: float
    leak_of_earlier: float
    leak_of_later: float
    recoverable_own: float | None = None
    recoverable_of_earlier: float | None = None
    recoverable_of_later: float | None = None
    margin_own: float | None = None
    margin_of_earlier: float | None = None
    margin_of_later: float | None = None
    leak_own_interval: list[float] | None = None
    leak_of_earlier_interval: list[float] | None = None
    leak_of_later_interval: list[float] | None = None
    recoverable_own_interval: list[float] | None = None
    recoverable_of_earlier_interval: list[float] | None = None
    recoverable_of_later_interval: list[float] | None = None


@dataclass(frozen=True)
class FlowPart:
    """One model and cut.

    Attributes:
        model, cut, slice: what was run, the last as `Slice.parse` reads it.
        tokens: labels of the matrices: of a single prompt its tokens, of several the positions #0, #1, ...
        sites: a summary a site.
        noise: of each site, the rounding that a margin must exceed; candidates: tokens tried in each place; exhaustive:
            whether they are the whole vocabulary (else recovery is an upper bound). None where recovery was not asked for.
    """

    model: str
    cut: str
    slice: str
    tokens: list[str]
    sites: list[FlowSummary]
    noise: list[float] | None
    candidates: int | None
    exhaustive: bool | None


@dataclass(frozen=True, repr=False)
class FlowResult(Result):
    """What tokens know of each other, site by site.

    `arrays` holds `leak`, `recoverable` and `margin` [sites, T, T] of the first part and `leak/K`, ... of part K, with
    entry (s, i, j) about input token i in output j.

    Attributes:
        site: the deepest of `sites` of the first part; tokens: the labels of its matrices.
        leak, recoverable: the means of its matrices at that site.
        prompts, length: how many prompts were averaged over, and their tokens.
        parts: one a model and cut.
    """

    kind: ClassVar[str] = "flow"
    site: str
    sites: list[str]
    tokens: list[str]
    leak: MatrixMeans
    recoverable: MatrixMeans | None
    prompts: int
    length: int
    parts: list[FlowPart]

    def frame(self) -> pd.DataFrame:
        """A pandas table: one row a part and site."""
        import pandas as pd

        return pd.DataFrame(
            [{"model": part.model, "cut": part.cut} | asdict(entry) for part in self.parts for entry in part.sites]
        )


@dataclass(frozen=True)
class ChannelPart:
    """The channel of one model and cut, at its deepest site.

    Attributes:
        model, cut, site: what was run. vocabulary, width: tokens and features of its code book.
        distances: how far apart the code book's rows are. noise, quantised: decoding through noise and rounding.
        bounds: the bits and features that no decoder can do without, by noise.
        widths: accuracy of each search by the features kept. thresholds: the fewest features that each needs.
        left_out: what was not done for its cost, as sentences.
    """

    model: str
    cut: str
    site: str
    vocabulary: int
    width: int
    distances: CodebookDistances
    noise: list[NoisyDecoding]
    quantised: list[RoundedDecoding]
    bounds: list[ChannelBound]
    widths: list[WidthAccuracy]
    thresholds: list[Threshold]
    left_out: list[str] = field(default_factory=list)


TableName = Literal["distances", "noise", "quantised", "bounds", "widths", "thresholds"]


@dataclass(frozen=True, repr=False)
class ChannelResult(Result):
    """How narrow and noisy the channel from a token to its output may be: one part a model and cut."""

    kind: ClassVar[str] = "channel"
    prompts: int
    length: int
    parts: list[ChannelPart]

    def frame(self, what: TableName = "distances") -> pd.DataFrame:
        """A pandas table, one row a part and measurement.

        Args:
            what: "distances", "noise", "quantised", "bounds", "widths" or "thresholds".

        Raises:
            BadInput: another name.
        """
        import pandas as pd

        names = TableName.__args__  # type: ignore[attr-defined]
        if what not in names:
            raise BadInput(f"The channel has no '{what}'; there are: {', '.join(names)}.")
        found = []
        for part in self.parts:
            value = getattr(part, what)
            for row in value if isinstance(value, list) else [value]:
                entry = {name: cell for name, cell in asdict(row).items() if name != "tried"}
                found.append({"model": part.model, "cut": part.cut} | entry)
        return pd.DataFrame(found)
