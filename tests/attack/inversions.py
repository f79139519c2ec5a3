"""Adversarial inversions: outputs made to draw a false word from a certificate, and the words checked against brute force.

`python -m tests.attack.inversions 500` runs them and prints a table, a row a family of attacks. Every claim of an entry
is compared with all tokens run one position after another in float64, by a model of its own, without a cache.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args, get_type_hints

import torch
from torch import Tensor

from headscan.inversion import Exact, PromptInversion
from headscan.inversion.assess import assess
from headscan.inversion.method import Problem
from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import BadInput
from headscan.text.prompts import Prompt
from tests.inversion.conftest import build

ORDERS = get_args(get_args(get_type_hints(Exact, include_extras=True)["order"])[0])
SITES = ("embedding", "block.0", "block.-1")
UNIQUE, TRIED, AMBIGUOUS = "recovered and unique", "recovered, unique among those tried", "ambiguous"


@dataclass
class Attack:
    """Outputs of several prompts, given to one search.

    Attributes:
        family: what is done.
        lens: the model that inverts; site: where.
        targets: outputs, one a prompt [T, w].
        truth: the tokens that gave each, None where no tokens of this model did.
        clean: whether nothing was done to the outputs, so that they must be recovered.
        order, tolerance, ask, allowed: of the search and its certificate.
    """

    family: str
    lens: Lens
    site: str
    targets: list[Tensor]
    truth: list[list[int] | None]
    clean: bool = False
    order: str = ORDERS[0]
    tolerance: float | None = None
    ask: str = "auto"
    allowed: Tensor | None = None
    dtype: torch.dtype = torch.float32


def slice_of(lens: Lens, site: str, dtype: torch.dtype = torch.float32) -> SlicedModel:
    """The slice at a site, "block.-1" being the last block, in a precision."""
    name = f"block.{lens.depth - 1}" if site == "block.-1" else site
    lens.model.to(dtype)
    return Slice(sites=(name,)).on(lens)


@torch.no_grad()
def truth_of(attack: Attack, recovered: list[int], target: Tensor) -> Tensor:
    """[T, V] float64 residuals of every token at every position, after the tokens recovered: no cache, one batch."""
    cut = slice_of(attack.lens, attack.site, torch.float64)
    rows = []
    for place, goal in enumerate(target.double()):
        ids = torch.tensor(recovered[: place + 1]).repeat(cut.vocabulary_size, 1)
        ids[:, place] = torch.arange(cut.vocabulary_size)
        away = (cut.run(ids)[:, place] - goal).norm(dim=1) / goal.norm().clamp_min(1e-300)
        rows.append(away.nan_to_num(nan=float("inf")))
    attack.lens.model.to(attack.dtype)
    return torch.stack(rows)


def false_words(attack: Attack, number: int, entry: PromptInversion) -> list[str]:
    """What an entry claims and brute force denies. Between half and twice the tolerance, rounding may decide."""
    proof, faults, truth = entry.certificate, [], attack.truth[number]
    table = truth_of(attack, entry.recovered, attack.targets[number])
    if attack.allowed is not None:
        table[:, ~attack.allowed] = float("inf")
    choice = int(table.isfinite().any(0).sum()) if attack.allowed is None else int(attack.allowed.sum())
    for place, (token, verdict) in enumerate(zip(entry.recovered, entry.verdicts, strict=True)):
        own, near = float(table[place, token]), (table[place] <= proof.tolerance / 2).nonzero()[:, 0].tolist()
        named = {token, *proof.equivalent[place]}
        if verdict in (UNIQUE, TRIED, AMBIGUOUS) and not own <= 2 * proof.tolerance:
            faults.append(f"{place}: {verdict}, but the token is {own:.1e} away, tolerance {proof.tolerance:.1e}")
        if verdict in (UNIQUE, AMBIGUOUS) and proof.types[place] != "sampled":
            if missing := set(near) - named:
                faults.append(f"{place}: {verdict}, without {sorted(missing)[:5]}")
            if own > float(table[place].min()) + 2 * proof.noise:
                faults.append(f"{place}: not the nearest: {own:.1e}, {float(table[place].min()):.1e}")
            if proof.compared[place] < choice and attack.dtype == torch.float32:
                faults.append(f"{place}: {proof.types[place]} after {proof.compared[place]} of {choice}")
        if verdict == UNIQUE and (proof.types[place] == "sampled" or proof.equivalent[place]):
            faults.append(f"{place}: unique on a sample, or with equivalents")
        if verdict == AMBIGUOUS and any(float(table[place, one]) > 2 * proof.tolerance for one in named):
            faults.append(f"{place}: an equivalent that is none")
        if verdict == "information absent" and float(table[place].max() - table[place].min()) > 10 * proof.noise:
            faults.append(f"{place}: absent, but tokens there move the output")
    whole = entry.verdict in (UNIQUE, TRIED)
    if whole and not float(max(table[range(len(table)), entry.recovered])) <= 2 * proof.tolerance:
        faults.append(f"{entry.verdict}, but an output is elsewhere")
    if whole and truth is not None and entry.recovered != truth:
        faults.append(f"{entry.verdict}, but the tokens were {truth}, not {entry.recovered}")
    if entry.verdict == UNIQUE and set(entry.verdicts) != {UNIQUE}:
        faults.append("unique, but not at each position")
    if entry.verdict == AMBIGUOUS and truth is not None and attack.ask != "sampled":
        lost = [p for p, token in enumerate(truth) if token not in (entry.recovered[p], *proof.equivalent[p])]
        faults += [f"ambiguous, but the token of position {lost[0]} is not named"] if lost[:1] and lost[0] == 0 else []
    said = entry.certified
    if ("unique among" in said) != (entry.verdict == UNIQUE) or (proof.type == "sampled" and entry.verdict == UNIQUE):
        faults.append(f"{entry.verdict}, {proof.type}: '{said}'")
    if attack.clean and entry.recovered != truth and entry.verdict != AMBIGUOUS:
        faults.append(f"lost: {entry.verdict}, {said}")
    return faults


def assessed(attack: Attack) -> list[PromptInversion]:
    """What comes of an attack, one entry a prompt."""
    cut = slice_of(attack.lens, attack.site, attack.dtype)
    problem = Problem(
        cut=cut, targets=attack.targets, lengths=[len(one) for one in attack.targets], known=[{}] * len(attack.targets),
        tolerance=attack.tolerance, allowed=attack.allowed,
    )  # fmt: skip
    entries = []
    # Gradients and long backtracking take most of the time where nothing is to be found; certificates know nothing of them.
    for number, found in enumerate(Exact(order=attack.order, gradient_after=None, backtracks=2).solve(problem)):
        ids = tuple(attack.truth[number] or [0] * problem.lengths[number])
        prompt = Prompt("", ids, ("",) * len(ids), ((0, 0),) * len(ids), (False,) * len(ids))
        entries.append(assess(problem, number, prompt, found, ask=attack.ask))
    return entries


def words(attack: Attack) -> Iterator[tuple[str, list[str]]]:
    """The verdict on each prompt of an attack, and what is false in it."""
    try:
        entries = assessed(attack)
    except BadInput as error:
        for _ in attack.targets:
            yield "refused", ["a refusal that is not about numbers"] if "number" not in str(error) else []
        return
    for number, entry in enumerate(entries):  # afterwards: brute force changes the precision
        yield entry.verdict, false_words(attack, number, entry)


def fresh(kind: str, seed: int) -> Lens:
    """A tiny random model of its own."""
    draw = torch.Generator().manual_seed(seed)

    def pick(*choices: int) -> int:
        return choices[int(torch.randint(len(choices), (1,), generator=draw))]

    return build(kind, vocabulary=pick(50, 120, 300), width=pick(16, 32, 64), depth=pick(1, 2, 3), seed=seed)


def main(count: int) -> int:
    """Run so many attacks and print what they drew."""
    from tests.attack.families import attacks

    table: dict[str, Counter[str]] = {}
    faults, start, done = [], time.time(), 0
    for attack in attacks(count):
        for verdict, wrong in words(attack):
            table.setdefault(attack.family, Counter())[verdict] += 1
            table[attack.family]["false words"] += bool(wrong)
            faults += [(attack.family, attack.site, attack.order, attack.ask, one) for one in wrong]
            done += 1
    names = [UNIQUE, TRIED, AMBIGUOUS, "information absent", "not recovered", "refused", "false words"]
    print("| attack | inversions | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 2) + "|", flush=True)
    for family, row in table.items():
        counts = [row[name] for name in names]
        print(f"| {family} | {sum(counts[:-1])} | " + " | ".join(map(str, counts)) + " |")
    print(f"{done} inversions, {len({f[:4] for f in faults})} attacks with false words, {time.time() - start:.0f} s")
    for one in faults[:30]:
        print(one)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
