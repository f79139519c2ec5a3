"""`compare --damage --budget`: a format for each matrix within a budget of bytes.

It is measured as a whole, on text that it was not chosen by.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from headscan.comparison.allocation import Allocation, chosen, shuffled, uniform
from headscan.comparison.damage import DamagePlan, DamageText, damage_source
from headscan.comparison.damage_findings import recipe_finding
from headscan.comparison.damage_tail import perplexity_cells, tail_rows, worst_contexts
from headscan.comparison.exchange import Divergences, ExchangeWindows, Models, Path, sweep
from headscan.comparison.rated_matrices import WHOLE, RatedMatrix, rated_matrices
from headscan.comparison.recipe_commands import recipe_commands
from headscan.comparison.result import DamageResult
from headscan.comparison.subjects import compared_subjects
from headscan.model.partwise import PartwiseModel
from headscan.model.rounding import RoundedOnce
from headscan.run import BadInput, Row, Run
from headscan.run.findings import named
from headscan.states import SourcesLike, VectorSource
from headscan.states.plan import ReadingPlan
from headscan.statistics.uncertainty import Cells, Floats

RECIPE = "recipe"
UNIFORM = "uniform"
SHUFFLED = "shuffled"
SHUFFLES = 2
"""Shuffled recipes, whose mean is compared with the recipe."""


def measure_recipe(
    sources: SourcesLike, plan: ReadingPlan, options: DamagePlan, run: Run
) -> DamageResult:
    """Return a mixed recipe for the blocks of one model, and its damage on held-out windows.

    Cost: two passes forwards of the sample and one or more backwards, then a pass of as many
    held-out tokens for the model and each choice. Memory: the model, one block in all formats, and
    the states of the sample.
    """
    assert options.budget is not None
    subject, *others = compared_subjects(sources, plan, run, "q4_0")
    if isinstance(subject.ready, VectorSource) or others:
        raise BadInput("Name one model for --budget; stored states have no matrices to round.")
    first = PartwiseModel(subject.load())
    if not all(weight.is_floating_point() for weight in first.lens.model.parameters()):
        raise BadInput(f"{subject.name} is rounded already: name the model that it was made from.")
    source = damage_source(first.lens, subject.name, plan)
    text = DamageText.read(source, plan, options)
    everything = text.windows([])
    sample = everything.part(text.sampled, [])
    rated = rated_matrices(first, sample, options.formats, run)
    recipe = chosen(rated, options.budget)
    spent = sum(choice.bytes for choice in recipe)
    allocations = {RECIPE: recipe, UNIFORM: uniform(rated, spent)}
    for draw in range(SHUFFLES):
        allocations[f"{SHUFFLED} {draw}"] = shuffled(rated, recipe, run.seed + draw)

    models, paths = _rounded_models(first, rated, allocations)
    held_out = everything.part(
        text.held_out(sample.documents), [(0,) * len(first.parts), *paths.values()]
    )
    [divergences], _ = sweep(models, [held_out], run, "choices", lambda _: {})
    choices = _choice_rows(allocations, paths, divergences, held_out)
    of_recipe = divergences[paths[RECIPE]]
    clusters = held_out.clusters(len(of_recipe.table) // len(held_out.ids))
    name = f"{subject.name} (recipe)"
    finding = recipe_finding(choices, name)
    records = [first.record, replace(first.record, name=name)]
    notes = [
        f"The recipe was chosen on {len(sample.ids)} windows and measured on {len(held_out.ids)} "
        "others. Formats are of the matrices of blocks: embedding, head and vectors stay.",
    ]
    commands, command_notes = recipe_commands(first.lens, rated, recipe)
    protocol = run.protocol(
        text=source.text(),
        device=first.record.device,
        dtype=first.record.dtype,
        notes=[*notes, *command_notes],
    )
    cells = held_out.means(of_recipe.columns()) | perplexity_cells(of_recipe, clusters)
    return DamageResult(
        protocol=protocol,
        models=records,
        damage=[],
        totals={"held out": Row(cells)},
        tail=tail_rows(of_recipe, clusters),
        contexts=worst_contexts(models, paths[RECIPE], held_out, of_recipe),
        sums={},
        choices=choices,
        recipe=_recipe_rows(rated, recipe),
        commands=commands,
        findings=[finding],
        tokens=len(of_recipe.table),
        sampled=sample.ids.numel(),
        failed=named([finding], options.fail_on),
    )


def _rounded_models(
    first: PartwiseModel, rated: list[RatedMatrix], allocations: dict[str, Allocation]
) -> tuple[Models, dict[str, Path]]:
    """Return the model and its roundings, and the path of each rounding by its name."""
    models = [first]
    paths: dict[str, Path] = {}
    once = RoundedOnce()
    for name, allocation in allocations.items():
        formats: dict[str, dict[str, str]] = defaultdict(dict)
        for matrix, choice in zip(rated, allocation, strict=True):
            if choice.name != WHOLE:
                formats[matrix.part][matrix.name] = choice.name
        paths[name] = (len(models),) * len(first.parts)
        models.append(PartwiseModel(first.lens, rounding=formats, once=once))
    return tuple(models), paths


def _choice_rows(
    allocations: dict[str, Allocation],
    paths: dict[str, Path],
    divergences: dict[Path, Divergences],
    windows: ExchangeWindows,
) -> list[Row]:
    """Return a row for each choice; that of shuffled recipes is their mean."""
    tables = {name: divergences[paths[name]].table for name in (RECIPE, UNIFORM)}
    of_shuffles = [divergences[paths[f"{SHUFFLED} {draw}"]].table for draw in range(SHUFFLES)]
    tables[SHUFFLED] = np.mean(of_shuffles, axis=0)
    allocations = allocations | {SHUFFLED: allocations[f"{SHUFFLED} 0"]}
    rows = []
    for name, table in tables.items():
        cells: Cells = {
            "choice": name,
            "formats": _counted(allocations[name]),
            "bytes": sum(choice.bytes for choice in allocations[name]),
            "predicted_kl": sum(choice.harm for choice in allocations[name]),
        }
        more: Floats = table - tables[RECIPE]
        cells |= windows.means(Divergences(table).columns())
        cells |= windows.means({"more_kl": more[:, 0], "more_loss": more[:, 2]})
        rows.append(Row(cells))
    return rows


def _counted(allocation: Allocation) -> list[str]:
    """Return how many matrices have each format, such as "12 q4_k"."""
    counts: dict[str, int] = {}
    for choice in allocation:
        counts[choice.format] = counts.get(choice.format, 0) + 1
    return [f"{count} {name}" for name, count in counts.items()]


def _recipe_rows(rated: list[RatedMatrix], recipe: Allocation) -> list[Row]:
    rows = []
    for matrix, choice in zip(rated, recipe, strict=True):
        cells: Cells = {
            "matrix": f"{matrix.part}.{matrix.name}",
            "format": choice.format,
            "bytes": choice.bytes,
            "bits": 8 * choice.bytes / matrix.weights,
            "harm": choice.harm,
        }
        rows.append(Row(cells))
    return rows
