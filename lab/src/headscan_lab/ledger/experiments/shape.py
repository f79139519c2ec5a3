"""Statements on the shape of hidden states: cone, spectrum, and words that are pushed away."""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import torch

from headscan.measures.cone import average_cosine, top_direction_share
from headscan.model import Lens
from headscan.run import BadInput
from headscan_lab.ledger.measurement import Measurement, mean_of
from headscan_lab.ledger.models import LARGE_TABLE, RANDOM_TWIN, lens_of, prompts
from headscan_lab.ledger.statement import Observation, enter_experiment

Numbers = npt.NDArray[np.float64]
REPEATS = 5  # pieces of text
ROWS = 8  # windows of a repeat
LENGTH = 48  # tokens of a window
SKIPPED = 4  # first positions that the second choice leaves out


def number(
    name: str, values: list[float], unit: str, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> Measurement:
    """Return the mean of one number a repeat."""
    tokens = len(values) * ROWS * LENGTH
    return mean_of(
        name, values, unit=unit, tokens=tokens, prompts=len(values) * ROWS, bounds=bounds
    )


def sites_of(lens: Lens) -> dict[str, str]:
    """Return the first, the middle and the last block of a model, and its last state."""
    blocks = [site for site in lens.default_sites if site.startswith("block.")]
    chosen = {
        "first block": blocks[0],
        "middle block": blocks[len(blocks) // 2],
        "last block": blocks[-1],
    }
    if lens.default_sites[-1] not in blocks:
        chosen["last state"] = lens.default_sites[-1]
    return chosen


@cache
def states_of(kind: str, seed: int) -> list[dict[str, Numbers]]:
    """Return the states [windows, T, d] of every repeat, by the name of their place."""
    large = kind.removeprefix(RANDOM_TWIN) != kind and _is_large(kind)
    lens = lens_of(kind, seed)
    sites = sites_of(lens)
    repeats = []
    for repeat in range(REPEATS):
        ids = prompts(kind, 1000 * seed + repeat, ROWS // (2 if large else 1), LENGTH)
        with torch.no_grad():
            states = lens.run(ids, sites=tuple(sites.values()))
        repeats.append({name: states[site].double().numpy() for name, site in sites.items()})
    return repeats


@cache
def _is_large(kind: str) -> bool:
    return lens_of(kind.removeprefix(RANDOM_TWIN)).input_embeddings.numel() > LARGE_TABLE


def _flat(states: Numbers, skipped: int = 0) -> Numbers:
    return states[:, skipped:].reshape(-1, states.shape[-1])


def _cosines(repeats: list[dict[str, Numbers]], place: str, skipped: int = 0) -> list[float]:
    return [float(average_cosine(_flat(states[place], skipped)) or 0.0) for states in repeats]


def mean_cosine(kind: str, seed: int, place: str) -> float:
    """Return the mean average cosine of the repeats at a place."""
    return float(np.mean(_cosines(states_of(kind, seed), place)))


def _cone(kind: str, seed: int) -> Observation:
    """Return the average cosine by layer, and that of the same model with random weights."""
    trained = states_of(kind, seed)
    values = []
    controls = []
    for place in ("middle block", "last block"):
        for skipped in (0, SKIPPED):
            where = f"{place}, {'all positions' if not skipped else 'without the first four'}"
            cosines = _cosines(trained, place, skipped)
            values.append(number(where, cosines, "average cosine", (-1.0, 1.0)))
    for place in ("first block", "last state"):
        if place in trained[0]:
            cosines = _cosines(trained, place)
            controls.append(number(place, cosines, "average cosine", (-1.0, 1.0)))
    random = states_of(f"{RANDOM_TWIN}{kind}", seed)
    random_controls = []
    for place in ("middle block", "last block", "first block"):
        name = f"random weights, {place}"
        random_controls.append(number(name, _cosines(random, place), "average cosine", (-1.0, 1.0)))
    controls = random_controls + controls
    return Observation(values=values, controls=controls)


def _gaussian(seed: int) -> Numbers:
    return np.random.default_rng(seed).standard_normal((ROWS * LENGTH, 128))


def _planted(name: str, measure: Callable[[Numbers], float]) -> Callable[[int], Measurement]:
    """Return the planted case of a measure: five Gaussian clouds."""

    def measured(seed: int) -> Measurement:
        values = [measure(_gaussian(5 * seed + repeat)) for repeat in range(REPEATS)]
        return number(f"{name} of a Gaussian cloud", values, name)

    return measured


enter_experiment(
    "S1",
    _cone,
    _planted("average cosine", lambda cloud: float(average_cosine(cloud) or 0.0)),
)


def _top_share(states: Numbers) -> float:
    """Return the share of energy on the first direction over that of a Gaussian cloud."""
    cloud = np.random.default_rng(0).standard_normal(states.shape)
    return float(top_direction_share(states) or 0.0) / float(top_direction_share(cloud) or 1.0)


def _centred_top_share(states: Numbers) -> float:
    return _top_share(states - states.mean(0))


def _spectrum(kind: str, seed: int) -> Observation:
    """Return the first direction's share of the energy over that of a Gaussian cloud."""
    repeats = states_of(kind, seed)
    values = []
    for place in ("middle block", "last block"):
        for skipped in (0, SKIPPED):
            where = f"{place}{', without the first four' if skipped else ''}"
            flat = [_flat(states[place], skipped) for states in repeats]
            uncentred = [_top_share(rows) for rows in flat]
            centred = [_centred_top_share(rows) for rows in flat]
            values.append(number(f"{where}, uncentred", uncentred, "times"))
            values.append(number(f"{where}, centred", centred, "times"))
    return Observation(values=values)


enter_experiment("S2", _spectrum, _planted("times", _centred_top_share))


def share_pushed_away(states: Numbers, table: Numbers) -> float:
    """Return the share of rows with which more than half of the states have a negative product."""
    return float(((table @ states.T < 0).mean(1) > 0.5).mean())


def without_common_vector(table: Numbers) -> Numbers:
    """Return the rows of a head less their mean, which no probability depends on."""
    return np.asarray(table - table.mean(0))


def _pushed_away(kind: str, seed: int) -> Observation:
    lens = lens_of(kind)
    head = lens.model.get_output_embeddings()
    if head is None:
        raise BadInput(f"{lens.name} has no head.")
    repeats = states_of(kind, seed)
    place = "last state" if "last state" in repeats[0] else "last block"
    generator = np.random.default_rng(seed)
    rows = generator.permutation(len(head.weight))[:8192]
    table = head.weight.detach()[torch.from_numpy(rows)].double().numpy()
    mean_row = head.weight.detach().mean(0).double().numpy()
    cloud = generator.standard_normal(table.shape)
    invariant = []
    skipped_first = []
    as_trained = []
    random = []
    for states in repeats:
        flat = _flat(states[place])
        invariant.append(share_pushed_away(flat, table - mean_row))
        skipped_first.append(share_pushed_away(_flat(states[place], SKIPPED), table - mean_row))
        as_trained.append(share_pushed_away(flat, table))
        random.append(share_pushed_away(flat, cloud))
    values = [
        number("the rows' common vector taken out", invariant, "share of words", (0.0, 1.0)),
        number("the same without the first four", skipped_first, "share of words", (0.0, 1.0)),
    ]
    controls = [
        number("as trained", as_trained, "share of words", (0.0, 1.0)),
        number("a random head", random, "share of words", (0.0, 1.0)),
    ]
    return Observation(
        values=values,
        controls=controls,
        note="mechanism",
        why="One vector that all rows share can push all words away; no probability depends on it.",
    )


def _random_head(seed: int) -> Measurement:
    values = []
    for repeat in range(REPEATS):
        generator = np.random.default_rng(5 * seed + repeat)
        states = generator.standard_normal((200, 64))
        values.append(share_pushed_away(states, generator.standard_normal((2000, 64))))
    return number("a random head on a Gaussian cloud", values, "share of words", (0.0, 1.0))


enter_experiment("S4", _pushed_away, _random_head)
