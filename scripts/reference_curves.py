"""Write src/headscan/training/reference.json: bands of numbers over training, of healthy runs of
the small recipes.

    python scripts/reference_curves.py FOLDER --text pydoc=pydoc --text stories=FILE ...    train
    what is missing, write the bands python scripts/reference_curves.py FOLDER --text ... --unseen
    NAME=FILE --check         how often healthy runs lie within

Of each design (a recipe and an objective) every text is trained at every rate (`keys_of`);
RECIPE:NAME=TEXT is a text of that recipe alone. A run is a folder in FOLDER; one that is finished
is read. A band at a step is mean ± t s √(1 + 1/n) of the numbers of n runs (of their logarithms,
where a number has no upper end) and half a hundredth, for it is written with three digits, inside
of the number's range: 95 % of further runs lie within where they are normal. `--check` counts: each
run in the bands of the others, and of the runs on other texts; fresh seeds; texts that no run has
learned.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from transformers import TrainerCallback, TrainerControl, TrainerState

import headscan
from headscan.statistics.uncertainty import student_quantile
from headscan.training.monitor import Monitor
from headscan.training.recipes import recipe_of
from headscan.training.reference import ReferenceRuns, curves_of
from headscan.training.result import TrainResult

FILE = Path(__file__).resolve().parents[1] / "src" / "headscan" / "training" / "reference.json"
RATES = (1e-3, 2e-3)
FRESH = 100
DESIGNS = [
    (recipe, objective)
    for objective in ("ce", "cwt")
    for recipe in ("gpt", "bert", "mixer", "multilingual")
]
OWN_SEEDS = {("gpt", "cwt"), ("bert", "cwt"), ("mixer", "cwt")}
SECOND = {("gpt", "ce")}
# seeds from which a run ends after so many steps; FRESH ones do not
EARLY = 50
LAST = 200
# steps after which everything is measured
READ = {0, 10, 30, 60, 100, 150, 200, 300, 450, 600, 800, 1000}
# of a curve; of one of a matrix
POINTS = 12
OF_SPECTRA = 7
BOUNDED = ("average_cosine", "share", "entropy", "tail")
PROTOCOL = (
    "headscan train RECIPE --objective OBJECTIVE --rate RATE, all else at its default (size "
    f"tiny), measured after the steps {', '.join(map(str, sorted(READ)))}; the band is mean ± t s "
    "√(1 + 1/n) over n runs."
)
Bands = dict[str, list[tuple[float, float, float]]]
Key = tuple[tuple[str, str], float, int]  # (name and text), rate, seed


class Stop(TrainerCallback):
    """The end of a run, whose schedule is that of the whole recipe."""

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        control.should_training_stop = state.global_step >= LAST


class Often(Monitor):
    """A monitor that measures the geometry and reads its families after the steps of READ, and no
    others.
    """

    def _regular(self, step: int) -> bool:
        return step in READ

    def on_step_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        step = state.global_step + 1
        reader = self._watching(model).reader
        if step == 1:
            self.every_family = [type(family)(every=1) for family in reader.families]
        reader.families[:] = [
            family
            for family in self.every_family
            if step in READ | {1} or family.name == "repeated"
        ]
        super().on_step_begin(args, state, control, model)


def trained(folder: Path, design: tuple[str, str], key: Key) -> TrainResult:
    """A run, or what it left."""
    (name, text), rate, seed = key
    out = folder / f"{'-'.join(design)}-{name}-{rate:g}-{seed}"
    if not (out / "result.json").exists():
        shutil.rmtree(out, ignore_errors=True)  # what a killed run left
        begun = time.process_time()
        with patch.object(import_module("headscan.training.run"), "Monitor", Often):
            result = headscan.train(
                recipe_of(design[0]).but(rate=rate),
                text,
                objective=design[1],
                seed=seed,
                out=out,
                trainer={"save_strategy": "no"},
                callbacks=[Stop()] if EARLY <= seed < FRESH else [],
            )
        spoke = ", ".join(alarm.name for alarm in result.alarms)
        print(
            f"{out.name}: {time.process_time() - begun:.0f} s of the processor; alarms: "
            f"{spoke or 'none'}",
            flush=True,
        )
    loaded = headscan.load(out)
    assert isinstance(loaded, TrainResult)
    return loaded


def points_by_step(result: TrainResult) -> dict[str, dict[int, float]]:
    """Return the values of every curve of a run, by step."""
    curves = curves_of(result.scan, result.readings, result.curve)
    return {name: dict(points) for name, points in curves.items()}


def range_of(name: str, width: int) -> tuple[float, float]:
    """Return the least and the largest value that a curve can have."""
    if name.endswith(BOUNDED):
        return (-1.0 if name.endswith("cosine") else 0.0), 1.0
    return -math.inf, (float(width) if name.endswith("rank") else math.inf)


def bands_of(results: list[TrainResult]) -> Bands:
    """The bands of every curve that all runs have."""
    curves = [points_by_step(result) for result in results]
    a_step = results[0].tokens // results[0].steps
    complete = sum(result.steps > LAST for result in results)
    bands: Bands = {}
    for name in sorted(set.intersection(*map(set, curves))):
        if name.startswith("embedding/"):
            # before the first block states are the text's tokens, and tell little of the run
            continue
        counts = Counter(chain.from_iterable(curve[name] for curve in curves))
        steps = sorted(step for step, count in counts.items() if count >= complete)
        points = OF_SPECTRA if "weight" in name else POINTS
        shares = name.endswith(BOUNDED)
        least, most = range_of(name, results[0].models[0].width or 0)
        # More points at the beginning, where curves change most.
        places = [round((len(steps) - 1) * (k / (points - 1)) ** 2) for k in range(points)]
        for step in dict.fromkeys(steps[place] for place in places):
            values = np.array([curve[name][step] for curve in curves if step in curve[name]])
            reach = student_quantile(len(values) - 1) * (1 + 1 / len(values)) ** 0.5
            logs = not shares and bool((values > 0).all())
            values = np.log(values) if logs else values
            rounded = 0.005 if logs else 0.005 * abs(values.mean())
            ends = values.mean() + (reach * values.std(ddof=1) + rounded) * np.array([-1, 1])
            low, high = np.clip(np.exp(ends) if logs else ends, least, most)
            bands.setdefault(name, []).append(
                (step * a_step, float(f"{low:.3g}"), float(f"{high:.3g}"))
            )
    return bands


def reference(
    design: tuple[str, str], results: list[TrainResult], texts: list[str]
) -> ReferenceRuns:
    """Return the reference that is stored for a recipe and objective."""
    model = results[0].models[0]
    first = results[0]
    sizes: dict[str, Any] = {
        name: getattr(model, name) for name in ("model_class", "depth", "width", "vocabulary")
    }
    a_step = first.tokens // first.steps
    complete = sum(result.steps > LAST for result in results)
    seeds_text = (
        f" and {len(results) - complete} over their first {LAST} steps"
        if len(results) > complete
        else ""
    )
    about = (
        f"Compared are {complete} runs of headscan train {design[0]} --objective "
        f"{design[1]}{seeds_text}: {model.width} wide, {model.depth} blocks, V "
        f"{model.vocabulary:,}, {a_step:,} tokens a step, rates {' and '.join(map(str, RATES))}, "
        f"texts {', '.join(texts)}"
    )
    sizes |= {
        "objective": design[1],
        "tokens_a_step": a_step,
        "planned_steps": first.recipe.steps,
        "runs": complete,
    }
    return ReferenceRuns(about=about, bands=bands_of(results), **sizes)


def within(result: TrainResult, known: ReferenceRuns) -> float:
    """The share of a run's numbers that lie in their bands."""
    a_step = result.tokens / result.steps
    shares = []
    for name, curve in curves_of(result.scan, result.readings, result.curve).items():
        bands = known.band(name, [step * a_step for step, _ in curve])
        shares += [
            band[0] <= value <= band[1]
            for (_, value), band in zip(curve, bands, strict=True)
            if band
        ]
    return float(np.mean(shares))


def main() -> None:
    """Train what is missing, and write or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", action="append", default=[], metavar="NAME=TEXT")
    parser.add_argument("--unseen", action="append", default=[], metavar="NAME=TEXT")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    written = []
    for design in DESIGNS:
        texts = texts_of(arguments.text, design[0])
        unseen = texts_of(arguments.unseen, design[0])
        results = {key: trained(arguments.folder, design, key) for key in keys_of(design, texts)}
        known = reference(design, list(results.values()), [name for name, _ in texts])
        written.append(asdict(known) | {"bands": packed(known.bands)})
        if arguments.check:
            check(arguments.folder, design, results, known, unseen)
    if not arguments.check:
        FILE.write_text(
            json.dumps({"protocol": PROTOCOL, "runs": written}, separators=(",", ":")) + "\n",
            encoding="utf-8",
        )
        print(f"{FILE.name}: {FILE.stat().st_size:,} bytes", file=sys.stderr)


def keys_of(design: tuple[str, str], texts: list[tuple[str, str]]) -> list[Key]:
    """Every text at every rate, some from one seed and some each from its own; of some a second run
    over the first steps.
    """
    pairs = [(text, rate) for text in texts for rate in RATES]
    keys: list[Key] = [
        (*pair, seed if design in OWN_SEEDS else 0) for seed, pair in enumerate(pairs)
    ]
    return keys + [(*pair, EARLY + seed) for seed, pair in enumerate(pairs) if design in SECOND]


def texts_of(arguments: list[str], recipe: str) -> list[tuple[str, str]]:
    """The texts of a recipe: those named NAME=TEXT, and its own, RECIPE:NAME=TEXT."""
    split = [argument.partition("=") for argument in arguments]
    return [
        (name.rpartition(":")[2], text)
        for name, _, text in split
        if name.rpartition(":")[0] in ("", recipe)
    ]


def packed(bands: Bands) -> list[tuple[list[float], dict[str, dict[str, list[float]]]]]:
    """Bands as they are written: curves of the same points together, by place and number, of each
    point low and high.
    """
    groups: dict[tuple[float, ...], dict[str, dict[str, list[float]]]] = {}
    for name, points in bands.items():
        where, _, measure = name.rpartition("/")
        group = groups.setdefault(tuple(point[0] for point in points), {})
        group.setdefault(where, {})[measure] = [end for point in points for end in point[1:]]
    return [(list(at), curves) for at, curves in groups.items()]


def check(
    folder: Path,
    design: tuple[str, str],
    results: dict[Key, TrainResult],
    known: ReferenceRuns,
    unseen: list[tuple[str, str]],
) -> None:
    """Print how much of healthy runs lies within."""

    def among(key: Key, index: int) -> float:
        """A run in the bands of those that differ in the text (place 0), or of all others (2)."""
        other_runs = [
            result
            for other_key, result in results.items()
            if other_key[index] != key[index] or (index == 2 and other_key[:2] != key[:2])
        ]
        return within(results[key], replace(known, bands=bands_of(other_runs)))

    texts = list(dict.fromkeys(text for text, _, _ in results))
    shares = {
        "left out": [among(key, 2) for key in results],
        "text left out": [among(key, 0) for key in results],
        "fresh seed": [
            within(trained(folder, design, (named_text, RATES[k % 2], FRESH)), known)
            for k, named_text in enumerate(texts)
        ],
        "unseen text": [
            within(trained(folder, design, (named_text, RATES[k % 2], FRESH)), known)
            for k, named_text in enumerate(unseen)
        ],
    }
    for title, values in shares.items():
        if values:
            print(
                f"{' '.join(design)}, {title}: {len(values)} runs, mean {np.mean(values):.3f}, "
                f"least {min(values):.3f} within"
            )


if __name__ == "__main__":
    main()
