"""The page of what a second model costs: parts by damage, which to keep, and all numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from headscan.report.kit import Figure, Head, Prose, Section, Term, page, section, table
from headscan.report.kit.figures import lines
from headscan.report.kit.words import named, number

if TYPE_CHECKING:
    from headscan.comparison.result import DamageResult
    from headscan.run import Row

NATS = "nats a token"
TERMS = {
    "block": Term("part"), "mode": Term("mode"), "choice": Term("choice"), "of": Term("windows"),
    "kl": Term("KL", "Divergence of the logits from the first model's.", "KL(first ‖ second)", unit=NATS, spread=True),
    "kl_reverse": Term("KL back", "The other way.", "KL(second ‖ first)", unit=NATS, where="page"),
    "loss_change": Term("loss change", "Loss minus the first model's.", unit=NATS, column="loss\nchange", where="page"),
    "top1_agreement": Term("top-1", "Predictions whose likeliest token is the first model's.", range=(0, 1), places=3),
    "share": Term("share", "Of the second model's divergence; accumulated, what this part adds.", places=3),
    "gain": Term("gain", "Fall of the divergence where this part of the second model is restored.", unit=NATS, where="page"),
    "relative_error": Term("state error", "Of the states behind it, over their size (roots of sums of squares).", where="page"),
    "mean_direction_error": Term("mean error", "The same of the mean vector.", where="page"),
    "outlier_error": Term("outlier error", "The same in coordinates above six times the median's size.", where="page"),
    "more_kl": Term("KL more", "Minus that of the greedy choice, by token.", unit=NATS, spread=True),
    "bytes": Term("bytes", "What the kept parts take more.", places=0, interval="counted", where="page"),
}  # fmt: skip
SHAPES = {
    "average_cosine": Term("cosine", "Average cosine of two tokens, without sinks, as scan has it."),
    "effective_rank": Term("rank", "Effective rank, without sinks, as scan has it."),
    "sink_share": Term("sinks", "Share of tokens longer than three times their window's median.", percent=True),
    "bits_lower": Term("bits, at least", "What a state in noise tells of which of the tokens it is of: U(2σ).", unit="bits"),
    "bits_upper": Term("bits, at most", "The same from above: U(σ), σ half of the root of the total variance.", unit="bits"),
}
BOTH = ("first", "second", "change")
SAME = {"second": "The same of the second model.", "change": "The second model's minus the first's, paired by token."}
TERMS |= {
    f"{name}_{which}": replace(term, title=f"{term.title} {which}", sentence=SAME.get(which, term.sentence), spread=True,
                               where="everywhere" if which == "change" and name in list(SHAPES)[:2] else "page")
    for name, term in SHAPES.items() for which in BOTH
}  # fmt: skip
COSTS = ("kl", "kl_reverse", "loss_change", "top1_agreement")
STATES = ("relative_error", "mean_direction_error", "outlier_error")


@page("damage")
def damage(result: DamageResult) -> Head:
    row, models = result.totals["whole"], [named(model.name) for model in result.models]
    kl, loss, same = (number(row.number(name)) for name in ("kl", "loss_change", "top1_agreement"))
    said = f"{models[1]} diverges from {models[0]} by {kl} nats a token and its loss changes by {loss}; {same} of its likeliest "
    return Head(models, f"{said}tokens are the same, on {result.tokens:,} predictions.")


@section("damage", 20)
def shape(result: DamageResult) -> Section | None:
    """What became of the states' shape at each site."""
    if not result.shape:
        return None

    def coordinates(row: Row) -> str:
        told = [[row[f"{kind}_coordinates_{which}"] for kind in ("massive", "rogue")] for which in BOTH[:2]]
        return " → ".join(", ".join(str(one) for kind in each for one in cast(list[int], kind)) or "none" for each in told)

    outlying = Term("outlying coordinates", "Massive or rogue ones, as scan names them: first → second.", where="page")
    columns = [f"{name}_{which}" for name in SHAPES for which in BOTH]
    every, said = table(result.shape, "site", *columns, (outlying, coordinates), terms=TERMS, title="Shape"), list[str]()
    for name, words in {"average_cosine": "the cosine", "effective_rank": "the effective rank", "bits_upper": "the bits"}.items():
        known = [ends for row in result.shape if (ends := row.interval(f"{name}_change"))]
        said += [f"at {sum(low > 0 or high < 0 for low, high in known)} of {len(known)} sites for {words}"] * bool(known)
    prose = Prose(f"The interval of the change, paired by token, leaves out 0 {', '.join(said)}.")
    lead = "The states of both models behind each part that changes them."
    return Section("The shape, before and after", lead, [every, *[prose] * bool(said)], name="shape")


@section("damage", 10)
def parts(result: DamageResult) -> list[Section]:
    """The second model, the picture and the rows of both modes, and the choices."""
    alone, sums = [row for row in result.damage if row["mode"] == "isolated"], {k: number(v) for k, v in result.sums.items()}
    series = {"alone in the first model": "kl", "given back where it is restored": "gain"}
    at = [row.text("block") for row in alone]
    picture = Figure("damage", lambda: lines(
        {words: (at, [row.number(key) for row in alone], [row.interval(key) for row in alone]) for words, key in series.items()},
        "part", f"KL, {NATS}", zero=True,
    ), "Divergence of the logits by part, with intervals", height=420)  # fmt: skip
    added = f"Alone the parts' divergences add up to {sums['isolated']}, restored alone to {sums['restored']}; the whole second "
    added += f"model's is {sums['total']}: the rest is what parts do together. Accumulated shares add up to 1."
    every = table(result.damage, "block", "mode", *COSTS, "share", "gain", *STATES, terms=TERMS, title="Parts")
    whole = [row | {"of": name} for name, row in result.totals.items()]
    costs = table(whole, "of", *COSTS, terms=TERMS, title="The whole")
    made = [Section("The whole", "Sample: where parts were exchanged.", [costs], name="whole")]
    lead = f"Isolated: one part of the second model in the first; accumulated: all up to it. On {result.sampled:,} predictions."
    made += [Section("Part by part", lead, (picture, every, Prose(added)), name="parts")] * bool(alone)
    if result.choices:
        shown = table(result.choices, "choice", "bytes", *COSTS[:3], "more_kl", terms=TERMS, title="Choices")
        kept = Prose("; ".join(f"{row['choice']}: {', '.join(row['kept'])}" for row in result.choices[1:-1]) + ".")  # type: ignore[arg-type]
        made.append(
            Section("Which parts to keep", "On other windows. Random: the mean of 8 choices.", [shown, kept], name="keep")
        )
    return made
