"""What is measured of one model beside its scan: each part as it was planned, or not at all."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from headscan.diagnosis.evidence import (
    BlockRemoved,
    Grid,
    LeakedBits,
    PromptRead,
    TokenFlow,
    TriedRemedies,
)
from headscan.diagnosis.plan import CheckupInputs, Deadline, ExaminationPlan, OutOfTime
from headscan.flow.run import run as measure
from headscan.inversion import invert
from headscan.inversion.reconstruction import VERDICTS
from headscan.leaks import privacy
from headscan.measures.pairs import mean_states
from headscan.model import Lens
from headscan.model.recording import after_call
from headscan.model.sites import is_block
from headscan.remedies.run import remedy
from headscan.run import BadInput, Progress
from headscan.statistics.uncertainty import student, wilson
from headscan.text import documents, tokenise

T = TypeVar("T")

PROMPT = 12
PASSAGE = 16
CANDIDATES = 256
"""Tokens of a prompt, of a passage, and of a position that the bits are counted over."""
NOISE = 0.8
"""Of the audit in bits, in the rms of the states' centred coordinates; it costs a model about a nat
a token.
"""
TOKENS = 4096
"""Of the text's beginning, that prompts are taken of."""
WINDOW = 64
LEAST_REMOVED = 512
MOST_REMOVED = 2048
"""Tokens of a window, and of all windows, that go through the model without a block."""
TRIED = "centre,standardise,all-but-the-top,whiten-softly"
PAIRS = 32
BATCH = 64
"""The remedies, the pairs of passages that they need at least, and passages of a forward pass."""


@dataclass
class Measurements:
    """The measurements of one model; `skipped` says which were left out, and why."""

    lens: Lens
    plan: ExaminationPlan
    inputs: CheckupInputs
    progress: Progress
    until: Deadline
    # keeps what a stage gave, for a resume (`Run.unit`)
    unit: Callable[[str, Any, Callable[[], Any]], Any]
    skipped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = self._ids(max(TOKENS, PASSAGE * self.plan.passages))
        self.blocks = [site for site in self.lens.default_sites if is_block(site)]

    def attempt(self, lacking: str, kind: type[T], work: Callable[[Progress], T]) -> T | None:
        """The result of a stage, which is whole; None, and the reason in `skipped`, where the
        budget was spent before its end.
        """

        def tried() -> tuple[T | None, str]:
            try:
                if self.until.left <= 0:
                    raise OutOfTime
                return work(self.until.kept(self.progress)), ""
            except OutOfTime:
                return None, f"{lacking}: there was no time in {self.inputs.budget}."
            except BadInput as error:
                return None, f"{lacking}: {error}"

        result, reason = self.unit(lacking, tuple[kind | None, str], tried)  # type: ignore[valid-type]
        if reason:
            self.skipped.append(reason)
        return result  # type: ignore[no-any-return]

    def leak(self) -> tuple[PromptRead | None, LeakedBits | None]:
        """Exact inversion of prompts from the text at one block, and bits behind noise there."""
        prompts = self._prompts(self.plan.prompts)
        reason = self._no_inversion(prompts)
        if reason is not None:
            self.skipped.append(f"No prompt was inverted: {reason}.")
            return None, None
        site = self.blocks[round(self.plan.depth * (len(self.blocks) - 1) - 0.01)]
        read = self.attempt(
            "No prompt was inverted", PromptRead, partial(self._read, prompts, site)
        )
        return read, self.attempt(
            "No bits were counted", LeakedBits, partial(self._bits, len(prompts), site)
        )

    def _no_inversion(self, prompts: list[list[int]]) -> str | None:
        """Return why no prompt can be inverted; None where one can."""
        if not self.plan.prompts:
            return f"there was no time in {self.inputs.budget}"
        if not self.lens.traits.causal:
            return "exact search reads from left to right (headscan invert --method joint)"
        if not self.blocks:
            return "the model has no blocks"
        if not prompts:
            return f"the text has fewer than {PROMPT} tokens"
        return None

    def _read(self, prompts: list[list[int]], site: str, progress: Progress) -> PromptRead:
        clock = time.perf_counter()
        search = partial(
            invert,
            self.lens,
            at=site,
            method="exact",
            certificate="sampled",
            seed=self.inputs.seed,
            progress=progress,
        )
        inversions = [search([prompt]) for prompt in prompts]
        total = PROMPT * len(inversions)
        accuracy = sum(inversion.token_accuracy or 0.0 for inversion in inversions) / len(
            inversions
        )
        low, high = wilson(round(accuracy * total), total)
        return PromptRead(
            site=site,
            prompts=len(inversions),
            tokens=total,
            recovered=accuracy,
            interval=(low, high),
            verdict=max((inversion.verdict for inversion in inversions), key=VERDICTS.index),
            seconds=round(time.perf_counter() - clock, 3),
        )

    def _bits(self, windows: int, site: str, progress: Progress) -> LeakedBits:
        progress("bits", 0, None, "tokens")
        tokens = min(TOKENS, self.inputs.reading.max_tokens or TOKENS)
        row = privacy(
            self.lens,
            self.inputs.require_text(),
            sites=site,
            noise=(NOISE,),
            windows=windows,
            length=PROMPT,
            candidates=min(CANDIDATES, self.lens.vocabulary_size),
            draws=32,
            seed=self.inputs.seed,
            progress=progress,
            **self.inputs.reading_of(tokens),
        ).rows[0]
        if row.bits_lower is None or row.bits_upper is None or not row.prior_bits:
            raise BadInput("the release has none.")
        return LeakedBits(
            site=site,
            noise=NOISE,
            tokens=row.tokens,
            prior_bits=row.prior_bits,
            lower=row.bits_lower,
            upper=row.bits_upper,
            interval=row.bits_interval,
            candidates=row.candidates,
            guessed=row.guess_accuracy,
            named=row.attack_accuracy,
        )

    def flow(self) -> TokenFlow | None:
        """How far other tokens move an output of the last block."""
        return self.attempt("Flow between tokens was not measured", TokenFlow, self._flow)

    def _flow(self, progress: Progress) -> TokenFlow:
        if not self.plan.flow:
            raise OutOfTime
        if not (self.ids[PROMPT - 1 :] and self.blocks):
            raise BadInput("no blocks, or too short a text.")
        shares = self._shares(progress)
        ends = student(shares) if len(shares) > 2 else None
        return TokenFlow(
            site=self.blocks[-1],
            prompts=len(shares),
            length=PROMPT,
            heard=sum(shares) / len(shares),
            interval=None if ends is None else (max(0.0, ends[0]), ends[1]),
        )

    def flow_of_control(self, control: Lens) -> float:
        """The same movement of random weights, which take the model's place, so that its own can be
        given back.
        """
        self.lens = control
        shares = self._shares(self.until.kept(self.progress))
        return sum(shares) / len(shares)

    def release(self) -> None:
        """Let go of the model, so that its weights can be given back."""
        del self.lens

    def _shares(self, progress: Progress) -> list[float]:
        """How far other tokens move an output over how far its own does, of each prompt."""
        prompts = self._prompts(self.plan.flow)
        seed = self.inputs.seed
        work = partial(
            measure,
            self.lens,
            at=self.blocks[-1],
            trials=2,
            recover=False,
            seed=seed,
            progress=progress,
        )
        results = [work(prompt=prompt) for prompt in prompts]
        flows = [result.parts[0].sites[-1] for result in results]
        causal = self.lens.traits.causal
        shares = []
        for flow in flows:
            moved = flow.leak_of_earlier
            if not causal:
                moved = (flow.leak_of_earlier + flow.leak_of_later) / 2
            shares.append(moved / max(flow.leak_own, 1e-30))
        return shares

    def removed(self) -> list[BlockRemoved]:
        """What each block's removal does to the loss, of models that predict a next token."""
        return (
            self.attempt("No block was taken out", list[BlockRemoved], self._removed) or []
            if self.blocks
            else []
        )

    def _removed(self, progress: Progress) -> list[BlockRemoved]:
        length = min(WINDOW, self.lens.context_length or WINDOW)
        blocks = len(self.blocks)
        tokens = min(MOST_REMOVED, self.plan.removed // blocks, len(self.ids)) // length * length
        if tokens < min(LEAST_REMOVED, MOST_REMOVED):
            raise (
                OutOfTime
                if self.plan.removed // blocks < LEAST_REMOVED
                else BadInput("the text is too short.")
            )
        windows = torch.tensor(self.ids[:tokens]).reshape(-1, length)
        plain = self._losses(windows)
        rows = list[BlockRemoved]()
        for done, site in enumerate(self.blocks):
            progress("blocks", done, blocks, "blocks")
            with after_call(self.lens.tap(site).module, _passed_through):
                change = self._losses(windows) - plain
            mean, loss = float(change.mean()), float(plain.mean())
            rows.append(
                BlockRemoved(
                    site=site, tokens=tokens, change=mean, interval=student(change), loss=loss
                )
            )
        return rows

    def _losses(self, windows: torch.Tensor) -> np.ndarray:
        """The mean loss of each window, in nats."""

        lost: list[torch.Tensor] = []
        for ids in windows.split(max(1, 2**25 // (windows.shape[1] * self.lens.vocabulary_size))):
            logits = self.lens.run(ids.to(self.lens.device), sites="head")["head"][:, :-1].float()
            targets = ids[:, 1:].to(logits.device)
            losses = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), reduction="none"
            )
            lost.append(losses.view(targets.shape).mean(1).cpu())
        return torch.cat(lost).double().numpy()

    def cure(self) -> TriedRemedies | None:
        """Remedies fitted on half of the passages and judged by the others."""
        return self.attempt("No remedy was tried", TriedRemedies, self._cure)

    def _cure(self, progress: Progress) -> TriedRemedies:
        if not self.plan.passages:
            raise OutOfTime
        starts = range(0, len(self.ids) - PASSAGE + 1, PASSAGE)
        passages = [self.ids[start : start + PASSAGE] for start in starts][: self.plan.passages]
        pairs = len(passages) // 2
        site = self.lens.default_sites[-1]
        if pairs < PAIRS:
            raise BadInput(f"the text has {pairs} pairs of passages, fewer than {PAIRS}.")
        passages = passages[: 2 * pairs]
        parts = []
        for start in range(0, 2 * pairs, BATCH):
            progress("passages", start, 2 * pairs, "passages")
            parts.append(mean_states(self.lens, passages[start : start + BATCH], [site])[site])
        vectors = np.concatenate(parts)
        if not np.isfinite(vectors).all():
            raise BadInput("the vectors are not finite.")
        result = remedy(
            vectors[1::2],
            partners=vectors[::2],
            remedies=TRIED,
            held_out=pairs,
            export="none",
            seed=self.inputs.seed,
            progress=progress,
        )
        queries = int(result.rows[0].number("queries") or 0)
        return TriedRemedies(
            site=site, length=PASSAGE, fitted=result.fitted, queries=queries, rows=result.rows
        )

    def _ids(self, most: int) -> list[int]:
        """Token ids of the beginning of the text, without special ones."""
        reading = self.inputs.reading
        text = self.inputs.require_text()
        count = min(most, reading.max_tokens or most)
        token_ids: list[int] = []
        pieces = documents(text, documents=reading.documents, field=reading.field)
        for stretch in tokenise(pieces, self.lens.require_tokenizer()):
            token_ids += stretch.ids.tolist()
            if len(token_ids) >= count:
                break
        return token_ids[:count]

    def _prompts(self, count: int) -> list[list[int]]:
        """At most so many prompts, evenly spaced over the beginning of the text."""
        ids = self.ids[:TOKENS]
        step = max(PROMPT, len(ids) // max(1, count))
        return [ids[k * step :][:PROMPT] for k in range(count) if len(ids) >= k * step + PROMPT]


def _passed_through(
    module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Any
) -> Any:
    """A block's input in place of its output."""
    states = args[0] if args else named["hidden_states"]
    return (states, *output[1:]) if isinstance(output, tuple) else states


GROUP = 64
ROWS = 64
NEIGHBOURS = 8192


def levels(weight: torch.Tensor) -> torch.Tensor:
    """Numbers of different values in groups of 64 neighbouring weights of some 64 rows of a matrix
    [n, d]; empty for d < 64. Of halves (their mean) where these hold at most 16 and the group more:
    blocks of 32, with an offset or without.

    A format of b bits with one scale for 32 weights or more leaves at most 2^b; float32 and
    bfloat16 leave about 64 and 40.

    >>> levels(torch.randn(8, 64).mul(4).round().clamp(-7, 8)).max().item() <= 16
    True
    """
    groups = weight.shape[1] // GROUP
    if not groups or not len(weight):
        return torch.zeros(0)
    rows = (
        weight.detach()[:: max(1, len(weight) // ROWS)][:ROWS, : groups * GROUP]
        .float()
        .reshape(-1, GROUP)
    )
    both, values = (
        1.0 + x.sort(1).values.diff(dim=1).ne(0).sum(1)
        for x in (rows, rows.reshape(-1, GROUP // 2))
    )
    fine = values.reshape(-1, 2).mean(1)
    return torch.where((fine <= 16) & (both > 16), fine, both)


def grid_of(model: nn.Module) -> Grid | None:
    """The grid of all matrices of at least 64 columns, None where there is none in floating point."""
    weights = {
        name: weight for name, weight in model.named_parameters() if weight.is_floating_point()
    }
    counts = {name: levels(weight).float() for name, weight in weights.items() if weight.ndim == 2}
    # A matrix of equal values, such as one that was never trained, was not rounded.
    medians = {
        name: median
        for name, count in counts.items()
        if len(count) and (median := float(count.median())) > 1
    }
    if not medians:
        return None
    coarsest = min(medians, key=medians.__getitem__)
    all_counts = torch.cat([counts[name] for name in medians])
    return Grid(
        levels=float(all_counts.median()),
        groups=len(all_counts),
        coarsest=coarsest,
        coarsest_levels=medians[coarsest],
    )


def vocabulary_order(lens: Lens) -> tuple[float | None, float | None]:
    """Of the token table: how much more alike neighbouring rows are than rows far apart, and the
    spread of the rows' norms.

    The first, of cosines, in standard errors: about 0 for permuted or untrained rows; of at most
    8,192 evenly spaced neighbours. The second of the same rows about their mean, over that of
    normal rows: 1 where they were never trained.
    """
    weight = getattr(lens.model.get_input_embeddings(), "weight", None)
    if weight is None or weight.ndim != 2 or len(weight) < GROUP:
        return None, None
    first = torch.linspace(0, len(weight) - 2, min(NEIGHBOURS, len(weight) - 1)).long()
    rows = weight.detach()[first].float()
    following = weight.detach()[first + 1].float()
    mean = rows.mean(0)
    norms = (rows - mean).norm(dim=1)
    spread = float(norms.std() / norms.mean().clamp_min(1e-12) * (2 * weight.shape[1]) ** 0.5)
    rows, following = (
        torch.nn.functional.normalize(vectors - mean) for vectors in (rows, following)
    )
    gain = (rows * following).sum(1) - (rows * following.roll(len(first) // 2, 0)).sum(1)
    return float(gain.mean() / gain.std().clamp_min(1e-12) * len(gain) ** 0.5), spread
