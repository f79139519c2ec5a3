"""What the states of one block give away: exact search of prompts, and bits that are left behind noise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from headscan.diagnosis.evidence import LeakedBits, PromptRead
from headscan.diagnosis.plan import BUDGETS, CANDIDATES, LEAK, PROMPT, Deadline, ExaminationPlan, OutOfTime
from headscan.diagnosis.settings import CheckingUp
from headscan.geometry.interval import wilson
from headscan.inversion import invert
from headscan.inversion.certificate import VERDICTS
from headscan.leaks import privacy
from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.run import BadInput, Run
from headscan.text.settings import Reading

__all__ = ["NOISE", "TOKENS", "leaking", "spread"]

NOISE = 0.8
"""Of the audit in bits, in the rms of the states' centred coordinates: a noise that costs a model about a nat a token."""
TOKENS = 4096
"""Of the text's beginning, that prompts are taken of; passages may take more."""
READING = 0.6
"""Of the time of both, what prompts may be inverted for."""


def spread(ids: Sequence[int], pieces: int, length: int) -> list[list[int]]:
    """At most so many pieces of `length` tokens, evenly spaced.

    >>> spread(range(10), 2, 3)
    [[0, 1, 2], [5, 6, 7]]
    """
    step = max(length, len(ids) // max(1, pieces))
    found = [list(ids[k * step :][:length]) for k in range(pieces)]
    return [one for one in found if len(one) == length]


def leaking(
    lens: Lens, ids: Sequence[int], plan: ExaminationPlan, settings: CheckingUp, run: Run, until: Deadline
) -> tuple[PromptRead | None, LeakedBits | None, list[str]]:
    """Exact inversion of prompts from the text at one block, bits behind noise there; and why there are none, or fewer."""
    if not plan.prompts:
        return None, None, []
    if not lens.traits.causal:
        return (
            None,
            None,
            ["No prompt was inverted: exact search reads from left to right (headscan invert --method joint)."],
        )
    blocks = [site for site in lens.default_sites if is_block(site)]
    if not blocks:
        return None, None, ["No prompt was inverted: the model has no blocks."]
    prompts = spread(ids, plan.prompts, PROMPT)
    if not prompts:
        return None, None, [f"No prompt was inverted: the text has fewer than {PROMPT} tokens."]
    site, said = blocks[round(plan.depth * (len(blocks) - 1) - 0.01)], list[str]()
    read, bits, share = None, None, LEAK * BUDGETS[settings.budget]
    try:
        read = _read(lens, prompts, site, settings, run, until.within(READING * share))
        if read is None or read.prompts < len(prompts):
            many = f"{read.prompts} of {len(prompts)} prompts were" if read else "No prompt was"
            said.append(f"{many} inverted: there was no time for more in {settings.budget}.")
    except BadInput as error:
        said.append(f"No prompt was inverted: {error}")
    try:
        bits = _bits(lens, site, len(prompts), settings, run, until.within((1 - READING) * share))
    except OutOfTime:
        said.append(f"No bits were counted: there was no time in {settings.budget}.")
    except BadInput as error:
        said.append(f"No bits were counted: {error}")
    return read, bits, said


def _read(
    lens: Lens, prompts: list[list[int]], site: str, settings: CheckingUp, run: Run, until: Deadline
) -> PromptRead | None:
    """Prompt by prompt, as many as there is time for."""
    clock, progress = time.perf_counter(), until.kept(run.progress)
    found = until.each(
        [
            partial(invert, lens, [one], at=site, method="exact", seed=settings.seed, progress=progress)
            for one in prompts
        ]
    )
    if not found:
        return None
    total, accuracy = PROMPT * len(found), sum(one.token_accuracy or 0.0 for one in found) / len(found)
    low, high = wilson(round(accuracy * total), total)
    return PromptRead(
        site=site, prompts=len(found), tokens=total, recovered=accuracy, interval=(low, high),
        verdict=max((one.verdict for one in found), key=VERDICTS.index), seconds=round(time.perf_counter() - clock, 3),
    )  # fmt: skip


def _bits(lens: Lens, site: str, windows: int, settings: CheckingUp, run: Run, until: Deadline) -> LeakedBits:
    assert settings.text is not None  # by `examined_model`'s caller
    progress = until.kept(run.progress)
    progress("bits", 0, None, "tokens")
    reading = settings.part(Reading) | {"max_tokens": min(TOKENS, settings.max_tokens or TOKENS)}
    row = privacy(
        lens, settings.text, sites=site, noise=(NOISE,), windows=windows, length=PROMPT, particles=0, others=0,
        candidates=min(CANDIDATES, lens.vocabulary_size), draws=32, seed=settings.seed, progress=progress, **reading,
    ).rows[0]  # fmt: skip
    if row.bits_lower is None or row.bits_upper is None or not row.prior_bits:
        raise BadInput("the release has none.")
    return LeakedBits(
        site=site, noise=NOISE, tokens=row.tokens, prior_bits=row.prior_bits, lower=row.bits_lower, upper=row.bits_upper,
        interval=row.bits_interval, candidates=row.candidates, guessed=row.guess_accuracy, named=row.attack_accuracy,
    )  # fmt: skip
