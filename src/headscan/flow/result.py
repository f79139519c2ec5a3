"""The results of `headscan flow` and `headscan channel`."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar, Literal

from headscan.flow.codebooks import ChannelBound, CodebookDistances, NoisyDecoding
from headscan.run import BadInput, DataFrame, Interval, Result, Term, tidy


@dataclass(frozen=True)
class MatrixMeans:
    """Means of a matrix over own (i = j), earlier (i < j: of tokens before the output) and later (i
    > j) tokens i.
    """

    own: float
    of_earlier: float
    of_later: float


@dataclass(frozen=True)
class FlowSummary:
    """The means of one site's matrices; those of recovery are None where it was not asked for.

    NAME_interval: 95 %, over prompts; None of fewer than three.
    """

    site: str
    leak_own: Annotated[
        float,
        Term(
            "leak, own token",
            "How far an output moves when its own token changes, as a share of its norm.",
            column="leak\nown\ntoken",
        ),
    ]
    leak_of_earlier: Annotated[
        float,
        Term(
            "leak of earlier tokens",
            "The same when a token before it changes.",
            column="leak\nearlier\ntokens",
        ),
    ]
    leak_of_later: Annotated[
        float,
        Term(
            "leak of later tokens",
            "The same when a token after it changes; 0 under a causal mask.",
            column="leak\nlater\ntokens",
        ),
    ]
    recoverable_own: Annotated[
        float | None,
        Term(
            "own token recovered",
            "Share of tokens that their own output distinguishes from all others.",
            column="own\ntoken\nrecovered",
        ),
    ] = None
    recoverable_of_earlier: Annotated[
        float | None,
        Term(
            "earlier tokens recovered",
            "Share of earlier tokens that one output alone gives away, others known.",
            column="earlier\ntokens\nrecovered",
        ),
    ] = None
    recoverable_of_later: Annotated[
        float | None,
        Term(
            "later tokens recovered", "The same of later tokens.", column="later\ntokens\nrecovered"
        ),
    ] = None
    leak_own_interval: Interval | None = None
    leak_of_earlier_interval: Interval | None = None
    leak_of_later_interval: Interval | None = None
    recoverable_own_interval: Interval | None = None
    recoverable_of_earlier_interval: Interval | None = None
    recoverable_of_later_interval: Interval | None = None


@dataclass(frozen=True)
class FlowPart:
    """One model and cut."""

    model: str
    cut: str
    slice: str  # as `Slice.parse` reads it
    # labels of the matrices: of a single prompt its tokens, of several the positions #0, #1, ...
    tokens: list[str]
    sites: list[FlowSummary]
    # of each site, the rounding that a margin must exceed; None without recovery
    noise: list[float] | None
    candidates: int | None  # tokens tried in each place
    # whether they are the whole vocabulary; else recovery is an upper bound
    exhaustive: bool | None


@dataclass(frozen=True, repr=False)
class FlowResult(Result):
    """How much each position depends on other tokens, site by site.

    `arrays` holds `leak`, `recoverable` and `margin` [sites, T, T] of the first part and `leak/K`,
    ... of part K, with entry (s, i, j) about input token i in output j.
    """

    kind: ClassVar[str] = "flow"
    site: str  # the deepest of `sites`, the first part's
    sites: list[str]
    tokens: list[str]  # labels of the first part's matrices
    leak: MatrixMeans  # at `site`
    recoverable: MatrixMeans | None
    prompts: int  # that were averaged over
    length: int  # their tokens
    parts: list[FlowPart]

    def frame(self) -> DataFrame:
        rows = []
        for part in self.parts:
            rows += [{"model": part.model, "cut": part.cut} | asdict(site) for site in part.sites]
        return tidy(rows)


@dataclass(frozen=True)
class ChannelPart:
    """The channel of one model and cut, at its deepest site."""

    model: str
    cut: str
    site: str
    vocabulary: int  # rows of its codebook
    width: int  # features of its codebook
    distances: CodebookDistances
    noise: list[NoisyDecoding]
    bounds: list[ChannelBound]  # the bits and features that no decoder can do without
    # what was not done for its cost, as sentences
    left_out: list[str] = field(default_factory=list)


TableName = Literal["distances", "noise", "bounds"]


@dataclass(frozen=True, repr=False)
class ChannelResult(Result):
    """The width, noise and capacity of the channel from a token to its output, a part a cut."""

    kind: ClassVar[str] = "channel"
    prompts: int
    length: int
    parts: list[ChannelPart]

    def frame(self, table: TableName = "distances") -> DataFrame:
        names = TableName.__args__  # type: ignore[attr-defined]
        if table not in names:
            raise BadInput(f"The channel has no '{table}'; there are: {', '.join(names)}.")
        rows = []
        for part in self.parts:
            value = getattr(part, table)
            for row in value if isinstance(value, list) else [value]:
                rows.append({"model": part.model, "cut": part.cut} | asdict(row))
        return tidy(rows)
