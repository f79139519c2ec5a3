"""The page of weights: every matrix beside its random control."""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median

from headscan.report.kit import Head, Line, Section, Table, Term, page, section, table
from headscan.report.kit.words import named
from headscan.run.vocabulary import terms_of
from headscan.weights import MatrixRow, WeightsResult

CONTROL = Term("of a\nrandom", "The stable rank of the control.")


@page("weights")
def weights(result: WeightsResult) -> Head:
    """Whose matrices, and less whose."""
    random = sum(row.random for row in result.matrices)
    lead = (
        f"{len(result.matrices)} matrices; {random} look random (half would be a finding), "
        f"{len(result.zero)} more are all "
    )
    lead += "zero. No text was read."
    return Head(["Weights of " + " less ".join(named(model.name) for model in result.models)], lead)


@section("weights", 10)
def spectra(result: WeightsResult) -> Section:
    """Medians over the blocks, and a row a matrix."""
    kinds = defaultdict[str, list[MatrixRow]](list)
    for row in result.matrices:
        kinds[re.sub(r"[.\[]\d+(?=[.\]]|$)", ".*", row.name).removesuffix(".weight")].append(row)
    columns = "stable_rank", "effective_rank", "spikes", "tail_exponent"
    rows = []
    for kind, some in kinds.items():
        numbers = [float(median(getattr(row, name) or 0 for row in some)) for name in columns]
        control = median(row.control["stable_rank"] for row in some)
        rows.append(Line(kind, [len(some), *numbers, control, sum(row.random for row in some)]))
    heads = [
        Term("matrices"),
        Term("count"),
        *(terms_of(MatrixRow)[name] for name in columns),
        CONTROL,
        Term("look\nrandom"),
    ]
    beside = CONTROL, lambda row: row.control["stable_rank"]
    each = table(
        result.matrices,
        "name",
        *columns,
        beside,
        "distance",
        "random",
        "tail_p",
        title="Each",
        where="page",
    )
    lead = (
        "Beside random matrices of the same shape and mean square. What a tail exponent says of a "
        "model is not claimed."
    )
    return Section(
        "Spectra", lead, [Table(heads, rows, "By kind", "Medians over the blocks."), each]
    )
