"""Measures: pure functions of a cloud of vectors, with everything a reader must know
beside them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import unwrap
from typing import Literal

import numpy as np
import torch
from scipy.special import gammaln

from headscan.run import BadInput, Registry, Term
from headscan.statistics import Cloud, Vectors
from headscan.statistics.linearisation import Gradient, Moments
from headscan.statistics.uncertainty import Bounds, Floats

WITHOUT_FIRST = "_without_first"
"""The end of the name of a number that leaves position 0 of each window out."""

WITHOUT_SINKS = "_without_sinks"
"""The end of the name of a number that leaves sink tokens out (headscan.statistics.reservoir)."""


def leading(row: Mapping[str, object], measure: str) -> str:
    """Return the column of a measure that leads: that of the tokens that are no sinks.

    It is the column of all tokens where the row knows of no sinks.

    >>> leading({"drift": 0.5, "drift_without_sinks": 0.1}, "drift")
    'drift_without_sinks'
    >>> leading({"drift": 0.5}, "drift")
    'drift'
    """
    name = measure + WITHOUT_SINKS
    return name if name in row else measure


@dataclass(frozen=True)
class Group:
    """A section of the page: its title and a sentence below it."""

    title: str
    lead: str = ""


GROUPS: dict[str, Group] = {
    "anatomy": Group(
        "Anatomy of the cone",
        "Which branches cause or reduce the cone, and what its direction encodes.",
    ),
    "cones": Group(
        "More about the cone", "Its axis, its angle, and whether a few coordinates make it."
    ),
    "spectra": Group(
        "More about the spectrum",
        "Other counts of dimensions, and the dimension of the points' neighbourhoods.",
    ),
    "norms": Group("More about lengths"),
    "words": Group(
        "Words in context", "How much of a vector depends on the word, on its context, on neither."
    ),
    "alignment": Group(
        "Alignment and uniformity",
        "How the directions spread over the sphere, and what lies close together.",
    ),
    "zipf": Group(
        "Zipf's law and its limitations", ("Effect of token frequencies on the embedding tables.")
    ),
    "head": Group(
        "The head",
        "The output layer: its input, the directions in use, the geometry of its classes.",
    ),
    "attention": Group("Attention", "Queries and keys, head by head."),
}
"""The sections in the page's order; a group that is not here comes after them, under its own name.
"""


def group(name: str) -> Group:
    """Return the section of a group, made from its name where it is none of headscan's own.

    >>> group("my_family").title
    'My family'
    """
    return GROUPS.get(name) or Group(name.replace("_", " ").capitalize())


def place(name: str) -> int:
    """Return the position of a group on the page.

    >>> place("cones"), place("my_family") == len(GROUPS)
    (1, True)
    """
    return [*GROUPS, name].index(name)


@dataclass(frozen=True, kw_only=True)
class MeasureWords(Term):
    """The term of a measure, as it stands in results: with its cost, and where and how it is shown.

    core: in every scan; others where `--measures` names them. spectral: it needs the second moment.
    multiple: the page draws it as a small multiple. order: its place among the measures, small
    numbers first. docs: its page under docs/measures.
    """

    title: str
    cost: str = "O(d) after one pass of O(nd)"
    spectral: bool = False
    core: bool = True
    multiple: bool = False
    order: int = 100
    docs: str = ""


@dataclass(frozen=True)
class Field(Term):
    """A number in a probe's rows. `first`: it is also given without position 0 of each window;
    `plotted`: the page draws it.
    """

    first: bool = False
    plotted: bool = False


@dataclass(frozen=True, kw_only=True)
class ProbeWords:
    """The description of a probe.

    Attributes:
        name: the key of its table in the result.
        title, sentence, group: for the page; order: its place in the group.
        literature: where it was published. docs: its page under docs/measures. function: what
            computes it, by its dotted name; the probe itself unless said.
        fields: the numbers in its rows. position: what it does about position 0 of each window, in
            a sentence.
        expensive: left out of `--measures all`. sample: how many sampled vectors of each site it
            needs.
        picture: how its plotted fields are drawn: by "layers", by attention "heads", by sets of
            "pairs", or in a section of its "own", which shows its rows, too.
    """

    name: str
    title: str
    group: str
    sentence: str
    literature: str
    position: str
    fields: dict[str, Field] = field(default_factory=dict)
    docs: str = ""
    function: str = ""
    sample: int = 0
    expensive: bool = False
    picture: Literal["layers", "heads", "pairs", "own"] = "layers"
    order: int = 100


MeasureFunction = Callable[[Cloud], float | None]
Reference = Callable[[Floats], float | None]
GradientOf = Callable[[Moments], Gradient | None]
Ends = Callable[[int, int], Bounds]


@dataclass(frozen=True)
class Measure:
    """A named number that describes the shape of a cloud of vectors, with its description.

    `reference` is a slow, obvious function of the rows [n, d] that gives the same; the tests hold
    the measure to it. `gradient` is its derivative, from which intervals are made (there are none
    where it is not given); `within` says the least and greatest value for n vectors in d
    dimensions, where they are tighter than the range.
    """

    name: str
    function: Callable[[Cloud], float | None]
    words: MeasureWords
    reference: Reference | None = None
    gradient: GradientOf | None = None
    within: Ends | None = None

    def __call__(self, points: Vectors) -> float | None:
        """Return the measure of a `Cloud`, or of the rows of a matrix [n, d].

        It is None where it is not defined.
        """
        return self.function(Cloud.of(points))

    @property
    def range(self) -> Bounds:
        return self.words.range

    def ends(self, count: int, width: int) -> Bounds:
        """Return the least and greatest value for `count` vectors of this width."""
        return self.range if self.within is None else self.within(count, width)

    @property
    def spectral(self) -> bool:
        return self.words.spectral


MEASURES: Registry[Measure] = Registry("measure", "headscan.measures")
"""Every measure of a cloud by its name: the files of headscan/measures, and those of plug-ins."""


def measure(
    term: Term,
    *,
    group: str = "",
    core: bool = True,
    spectral: bool = False,
    cost: str = MeasureWords.cost,
    multiple: bool = False,
    order: int = 100,
    docs: str = "",
    reference: Reference | None = None,
    gradient: GradientOf | None = None,
    ends: Ends | None = None,
) -> Callable[[Callable[[Cloud], float | None]], Callable[[Vectors], float | None]]:
    """Register a function of a `Cloud` as a measure under its own name.

    Scan, table, page, docs and tests have it then. The function that is returned takes a `Cloud` or
    the rows of any matrix [n, d] (list, numpy array, tensor). For `group` (a section of the page),
    `core`, `spectral`, `cost`, `multiple`, `order`, `docs` see `MeasureWords`; for the others
    `Measure`.
    """
    flags = {
        "core": core,
        "spectral": spectral,
        "cost": cost,
        "multiple": multiple,
        "order": order,
        "docs": docs,
    }
    flags["group"] = group or term.group
    entry = term if isinstance(term, MeasureWords) else MeasureWords(**vars(term) | flags)

    def register(function: Callable[[Cloud], float | None]) -> Callable[[Vectors], float | None]:
        registered = MEASURES.add(
            function.__name__,
            Measure(function.__name__, function, entry, reference, gradient, ends),
        )

        @wraps(function)
        def measured(points: Vectors) -> float | None:
            return registered(points)

        return measured

    return register


YOUR_MEASURES = "your_measures"
"""The group of measures that are given as functions."""


def name_of(choice: str | MeasureFunction) -> str:
    """Return a name or glob as it is; a function is registered as a measure under its own name.

    Raises:
        BadInput: for a function without a name, or with that of another measure.
    """
    if isinstance(choice, str):
        return choice
    name = getattr(choice, "__name__", "")
    if not name.isidentifier():
        raise BadInput("A measure that is given as a function needs a name: define it with def.")
    registered = MEASURES.get(name)
    if registered is not None and registered.words.group != YOUR_MEASURES:
        if registered.function is not unwrap(choice):
            raise BadInput(f"There is a measure {name!r} already: give your function another name.")
        return name
    title = name.replace("_", " ").capitalize()
    sentence = (choice.__doc__ or "").strip().partition("\n")[0]
    measure(Term(title, sentence), group=YOUR_MEASURES, core=False, spectral=True)(choice)
    return name


def gaussian_cloud(
    count: int, width: int, *, mean_square_norm: float, generator: np.random.Generator
) -> Cloud:
    """Return the sums of `count` independent draws from N(0, s²I) in `width` dimensions, without
    drawing them all.

    s² = mean_square_norm/width. With many draws the sums are sampled from their own laws: the
    scatter around the mean is Wishart with n − 1 degrees of freedom (Bartlett's decomposition: a
    triangle of normals with χ on its diagonal), independent of the mean N(0, s²I/n). Σx/‖x‖ has
    covariance n·I/d and is normal to O(1/n); Σ‖x‖ is set to its expectation
    n·s·√2·Γ((d+1)/2)/Γ(d/2). With fewer than 2·width + 1000 draws, they are simply drawn. Cost
    O(min(n, d)·d²).

    >>> cloud = gaussian_cloud(10_000, 8, mean_square_norm=2.0, generator=np.random.default_rng(0))
    >>> round(float(np.trace(cloud.second_moment)), 1)
    2.0
    """
    scale = (mean_square_norm / width) ** 0.5
    if count < 2 * width + 1000:
        return Cloud.of_rows(scale * generator.standard_normal((count, width)))
    triangle = np.tril(generator.standard_normal((width, width)), -1)
    triangle[np.diag_indices(width)] = np.sqrt(generator.chisquare(count - 1 - np.arange(width)))
    mean = generator.standard_normal(width) / count**0.5
    scatter = scale**2 * (triangle @ triangle.T)
    expected_norm = scale * 2**0.5 * float(np.exp(gammaln((width + 1) / 2) - gammaln(width / 2)))
    return Cloud(
        count=count,
        zeros=0,
        unit_sum=generator.standard_normal(width) * (count / width) ** 0.5,
        vector_sum=scale * count * mean,
        norm_sum=count * expected_norm,
        square_sum=float(np.trace(scatter)) + scale**2 * count * float(mean @ mean),
        centred=torch.from_numpy(scatter / max(count, 1)),
    )
