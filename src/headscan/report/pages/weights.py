"""The page of weights: every matrix beside its random control."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from headscan.report.kit import Head, Line, Section, Table, Term, page, section, table
from headscan.report.kit.words import named
from headscan.run.vocabulary import terms_of
from headscan.weights import MatrixRow, WeightsResult

CONTROL = Term("of a\nrandom", "The stable rank of the control.")
BLOCK_NUMBER = re.compile(r"[.\[]\d+(?=[.\]]|$)")
COLUMNS = ("stable_rank", "effective_rank", "spikes", "tail_exponent")


@page("weights")
def weights(result: WeightsResult) -> Head:
    """Return the models, and how many of their matrices look random."""
    random = sum(row.random for row in result.matrices)
    verb = "look" if random > 1 else "looks"
    zero = f"; {len(result.zero)} more are all zero" if result.zero else ""
    sentence = f"{random or 'None'} of {len(result.matrices)} weight matrices {verb} random{zero}."
    names = [named(model.name) for model in result.models]
    return Head([f"Weights of {' less '.join(names)}"], sentence)


@section("weights", 10)
def spectra(result: WeightsResult) -> Section:
    """Return the medians over the blocks, and a row a matrix."""
    matrices = table(
        result.matrices,
        "name",
        *COLUMNS,
        (CONTROL, lambda row: row.control["stable_rank"]),
        "distance",
        "random",
        "tail_p",
        title="Each",
        where="page",
    )
    lead = (
        "Each matrix stands beside a random one of the same shape and mean square. No claim is "
        "made about what a tail exponent says of a model."
    )
    return Section("Spectra", lead, [_by_kind(result.matrices), matrices])


def _by_kind(matrices: Sequence[MatrixRow]) -> Table:
    """Return medians over the matrices that blocks have alike: `*` stands for the block."""
    rows_by_kind: defaultdict[str, list[MatrixRow]] = defaultdict(list)
    for row in matrices:
        kind = BLOCK_NUMBER.sub(".*", row.name).removesuffix(".weight")
        rows_by_kind[kind].append(row)
    lines = []
    for kind, rows in rows_by_kind.items():
        medians = [float(median(getattr(row, name) or 0 for row in rows)) for name in COLUMNS]
        control = median(row.control["stable_rank"] for row in rows)
        random = sum(row.random for row in rows)
        lines.append(Line(kind, [len(rows), *medians, control, random]))
    terms = terms_of(MatrixRow)
    columns = [
        Term("matrices"),
        Term("count"),
        *(terms[name] for name in COLUMNS),
        CONTROL,
        Term("look\nrandom"),
    ]
    return Table(columns, lines, "By kind", "Medians over the blocks.")
