"""What an entry of an inversion claims, held against every token, or every prompt, run in float64
without a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headscan.inversion import PromptInversion
from headscan.model.slicing import SlicedModel

if TYPE_CHECKING:
    from tests.attack.inversions import Attack

__all__ = ["AMBIGUOUS", "FOREIGN", "TRIED", "UNIQUE", "false_words", "ordered"]

UNIQUE = "recovered and unique"
TRIED = "recovered, unique among those tried"
AMBIGUOUS = "ambiguous"
FOREIGN = "no token fits"
MOST = 2**15  # prompts that are run to hold a joint search against all of them


def ordered(cut: SlicedModel, length: int) -> bool:
    """Tell whether each position's output is given and sees no later token, so that prefixes can be
    judged.
    """
    return cut.causal and cut.slice.pool is None and cut.kept(length) == list(range(length))


def away(cut: SlicedModel, rows: Tensor, target: Tensor) -> Tensor:
    """[N, T'] relative distances of the outputs of rows [N, T], infinite where they are
    no numbers.
    """
    parts = [cut.run(part).double() - target.double() for part in rows.split(4096)]
    distance = torch.cat(parts).norm(dim=-1) / target.double().norm(dim=-1).clamp_min(1e-300)
    return distance.nan_to_num(nan=float("inf"))


@torch.no_grad()
def truth_of(attack: Attack, tokens: list[int], target: Tensor) -> Tensor:
    """[T, V] residuals of every token at every position: of its own output after the tokens found,
    where prefixes can be judged; else of all outputs, the other tokens being as found.
    """
    cut = attack.cut(torch.float64)
    rows = []
    alone = ordered(cut, len(tokens))
    for position in range(len(tokens)):
        ids = torch.tensor(tokens[: position + 1] if alone else tokens).repeat(
            cut.vocabulary_size, 1
        )
        ids[:, position] = torch.arange(cut.vocabulary_size)
        rows.append(
            away(cut, ids, target[: position + 1])[:, position]
            if alone
            else away(cut, ids, target).amax(1)
        )
    attack.lens.model.to(attack.dtype)
    table = torch.stack(rows)
    if attack.allowed is not None:
        table[:, ~attack.allowed] = float("inf")
    return table


@torch.no_grad()
def prompts_within(
    attack: Attack, length: int, target: Tensor, tolerance: float
) -> list[list[int]] | None:
    """All prompts of this length whose outputs are within a tolerance; None where they are too many
    to run.
    """
    cut = attack.cut(torch.float64)
    if cut.vocabulary_size**length > MOST:
        attack.lens.model.to(attack.dtype)
        return None
    choices = torch.arange(cut.vocabulary_size)
    choices = choices if attack.allowed is None else choices[attack.allowed]
    rows = torch.cartesian_prod(*[choices] * length).reshape(-1, length)
    matching = rows[away(cut, rows, target).amax(1) <= tolerance].tolist()
    attack.lens.model.to(attack.dtype)
    return matching  # type: ignore[no-any-return]


def false_words(attack: Attack, number: int, entry: PromptInversion) -> list[str]:
    """Return what an entry claims and brute force denies. Between half and twice the tolerance,
    rounding may decide.
    """
    proof = entry.certificate
    target = attack.targets[number]
    table = truth_of(attack, entry.recovered, target)
    faults = _of_positions(attack, entry, table)
    faults += _of_the_whole(attack, number, entry, table)
    if entry.verdict in (UNIQUE, TRIED, AMBIGUOUS) and attack.complete:
        within = prompts_within(attack, len(entry.recovered), target, proof.tolerance / 2)
        if (
            entry.verdict == UNIQUE
            and within is not None
            and [prompt for prompt in within if prompt != entry.recovered]
        ):
            faults.append(f"unique, but {len(within)} prompts of this length give the output")
    certified = entry.certified
    if ("unique among" in certified) != (entry.verdict == UNIQUE) or (
        proof.type == "sampled" and entry.verdict == UNIQUE
    ):
        faults.append(f"{entry.verdict}, {proof.type}: '{certified}'")
    if certified.startswith("Recovered") != (entry.verdict not in ("not recovered", FOREIGN)):
        faults.append(f"{entry.verdict}: '{certified}'")
    return faults


def _of_positions(attack: Attack, entry: PromptInversion, table: Tensor) -> list[str]:
    """The verdict on each position, its type and its equivalents."""
    proof = entry.certificate
    faults = []
    choice = (
        int(table.isfinite().any(0).sum()) if attack.allowed is None else int(attack.allowed.sum())
    )
    for position, (token, verdict) in enumerate(zip(entry.recovered, entry.verdicts, strict=True)):
        distance = float(table[position, token])
        close = (table[position] <= proof.tolerance / 2).nonzero()[:, 0].tolist()
        named = {token, *proof.equivalent[position]}
        complete = proof.types[position] != "sampled"
        exhaustive = proof.compared[position] >= choice > 0
        if verdict in (UNIQUE, TRIED, AMBIGUOUS) and not distance <= 2 * proof.tolerance:
            faults.append(
                f"{position}: {verdict}, but the token is {distance:.1e} away, tolerance "
                f"{proof.tolerance:.1e}"
            )
        # Under a prefix that is a guess, "those tried" are others than these.
        missing = set(close) - named
        if verdict in (UNIQUE, AMBIGUOUS) and (complete or exhaustive) and missing:
            faults.append(f"{position}: {verdict}, without {sorted(missing)[:5]}")
        if verdict in (UNIQUE, AMBIGUOUS) and complete:
            nearest = float(table[position].min())
            if distance > nearest + 2 * proof.noise:
                faults.append(f"{position}: not the nearest: {distance:.1e}, {nearest:.1e}")
            if not exhaustive and attack.dtype == torch.float32:
                compared = proof.compared[position]
                faults.append(f"{position}: {proof.types[position]} after {compared} of {choice}")
        if verdict == TRIED and exhaustive and entry.verdict == TRIED and missing:
            faults.append(f"{position}: {verdict}, and {sorted(missing)[:5]} were tried")
        if verdict == UNIQUE and (not complete or proof.equivalent[position]):
            faults.append(f"{position}: unique on a sample, or with equivalents")
        if verdict == UNIQUE and len(table[position]) > 1:
            gap = float(table[position].sort()[0][1]) - distance
            if gap <= proof.noise:
                faults.append(
                    f"{position}: unique, but another token is only {gap:.1e} farther, and "
                    f"rounding makes {proof.noise:.1e}"
                )
        if verdict == AMBIGUOUS and any(
            float(table[position, token]) > 2 * proof.tolerance for token in named
        ):
            faults.append(f"{position}: an equivalent that is none")
        if (
            verdict == "information absent"
            and float(table[position].max() - table[position].min()) > 10 * proof.noise
        ):
            faults.append(f"{position}: absent, but tokens there move the output")
    return faults


def _of_the_whole(attack: Attack, number: int, entry: PromptInversion, table: Tensor) -> list[str]:
    """The verdict on the prompt, against the outputs and the tokens that made them; and why nothing
    was recovered.
    """
    proof = entry.certificate
    faults = []
    truth = attack.truth[number]
    tried = entry.verdict in (UNIQUE, TRIED)
    if tried and not float(max(table[range(len(table)), entry.recovered])) <= 2 * proof.tolerance:
        faults.append(f"{entry.verdict}, but an output is elsewhere")
    if tried and truth is not None and entry.recovered != truth:
        faults.append(f"{entry.verdict}, but the tokens were {truth}, not {entry.recovered}")
    if entry.verdict == UNIQUE and set(entry.verdicts) != {UNIQUE}:
        faults.append("unique, but not at each position")
    if entry.verdict == AMBIGUOUS and truth is not None and attack.ask != "sampled":
        lost = [
            p
            for p, token in enumerate(truth)
            if token not in (entry.recovered[p], *proof.equivalent[p])
        ]
        if lost[:1] == [0] and attack.searched:
            faults.append("ambiguous, but the token of position 0 is not named")
    if attack.clean and attack.searched and entry.recovered != truth and entry.verdict != AMBIGUOUS:
        faults.append(f"lost: {entry.verdict}, {entry.certified}")
    denied = "none of the" in entry.certified or entry.verdict == FOREIGN
    if (
        denied
        and attack.dtype == torch.float32
        and float(table.amin(1).max()) <= proof.tolerance / 2
    ):
        faults.append(f"each position has a token that fits: '{entry.certified}'")
    if entry.verdict == FOREIGN and float(table[0].min()) <= proof.tolerance / 2:
        faults.append("no token fits, but a token gives its first state")
    return faults
