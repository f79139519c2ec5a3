"""The measurements of one model beside its scan: each is done as planned, or not at all."""

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
    EmbeddingScale,
    LeakedBits,
    PromptRead,
    Skipped,
    Stage,
    TokenFlow,
    TriedRemedies,
)
from headscan.diagnosis.plan import (
    Budget,
    CheckupInputs,
    Deadline,
    ExaminationPlan,
    OutOfTime,
)
from headscan.flow.run import run as measure_flow
from headscan.inversion import invert
from headscan.inversion.reconstruction import VERDICTS
from headscan.leaks import privacy
from headscan.measures.pairs import mean_states
from headscan.model import Lens
from headscan.model.framed import framed
from headscan.model.recording import after_call
from headscan.model.sites import is_block
from headscan.remedies.run import remedy
from headscan.run import BadInput, Progress
from headscan.statistics.uncertainty import student, wilson
from headscan.text import documents, tokenise

T = TypeVar("T")

PROMPT = 12
"""Tokens of a prompt."""
PASSAGE = 16
"""Tokens of a passage."""
CANDIDATES = 256
"""Tokens that the bits of a position are counted over."""
NOISE = 0.8
"""Noise of the audit in bits, in the rms of the states' centred coordinates; it costs a model about
a nat a token.
"""
TOKENS = 4096
"""Tokens of the text's beginning that prompts are taken from."""
WINDOW = 64
"""Tokens of a window that goes through the model without a block."""
LEAST_REMOVED = 512
MOST_REMOVED = 2048
"""The least and the largest number of tokens of all such windows."""
LOGITS = 2**25
"""Logits that are held at once, of windows without a block."""
TRIED = "centre,standardise,all-but-the-top,whiten-softly"
"""The remedies."""
PAIRS = 32
"""Pairs of passages that the remedies need at least."""
BATCH = 64
"""Passages of a forward pass."""


SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The factors that input embeddings are multiplied by."""
EMBEDDING = "embedding"
"""The site of the input embeddings."""


class TooShort(BadInput):
    """The text is too short for a stage."""


def left_out(stage: Stage, lacking: str, reason: str, option: str = "") -> Skipped:
    """Return a stage that was left out; `lacking` begins the sentence that the reason ends."""
    reason = reason.rstrip(".")
    return Skipped(stage=stage, sentence=f"{lacking}: {reason}.", reason=reason, option=option)


def out_of_time(stage: Stage, lacking: str, budget: Budget) -> Skipped:
    """Return a stage that the budget had no time for, with the budget that may have."""
    larger = {"2m": "10m", "10m": "full", "full": "full"}[budget]
    return left_out(stage, lacking, f"there was no time in {budget}", f"--budget {larger}")


@dataclass
class Measurements:
    """The measurements of one model; `skipped` says which were left out, and why."""

    lens: Lens
    plan: ExaminationPlan
    inputs: CheckupInputs
    progress: Progress
    deadline: Deadline
    # stores the result of a stage, for a resume (`Run.unit`)
    unit: Callable[[str, Any, Callable[[], Any]], Any]
    skipped: list[Skipped] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.frame = self.lens.frame
        self.token_ids = self._beginning_of_text(max(TOKENS, PASSAGE * self.plan.passages))
        self.blocks = [site for site in self.lens.default_sites if is_block(site)]

    def attempt(
        self, stage: Stage, lacking: str, kind: type[T], work: Callable[[Progress], T]
    ) -> T | None:
        """Return the result of a stage that was finished; None, with the reason in `skipped`, where
        the budget was spent before its end or the input does not suffice.
        """

        def result_and_reason() -> tuple[T | None, Skipped | None]:
            try:
                if self.deadline.left <= 0:
                    raise OutOfTime
                return work(self.deadline.kept(self.progress)), None
            except OutOfTime:
                return None, out_of_time(stage, lacking, self.inputs.budget)
            except TooShort as error:
                return None, left_out(stage, lacking, str(error), "--text with a longer text")
            except BadInput as error:
                return None, left_out(stage, lacking, str(error))

        stored_kind = tuple[kind | None, Skipped | None]  # type: ignore[valid-type]
        result, skipped = self.unit(lacking, stored_kind, result_and_reason)
        if skipped is not None:
            self.skipped.append(skipped)
        return result  # type: ignore[no-any-return]

    def release(self) -> None:
        """Let go of the model, so that its weights can be given back."""
        del self.lens

    def leak(self) -> tuple[PromptRead | None, LeakedBits | None]:
        """Return what exact inversion reads of prompts at one block, and the bits behind noise
        there.
        """
        prompts = self._prompts(self.plan.prompts)
        skipped = self._no_inversion(prompts)
        if skipped is not None:
            self.skipped.append(skipped)
            return None, None
        site = self.blocks[round(self.plan.depth * (len(self.blocks) - 1) - 0.01)]
        read = self.attempt(
            "inversion",
            "No prompt was inverted",
            PromptRead,
            partial(self._read_prompts, prompts, site),
        )
        bits = self.attempt(
            "bits",
            "No bits were counted",
            LeakedBits,
            partial(self._count_bits, len(prompts), site),
        )
        return read, bits

    def _no_inversion(self, prompts: list[list[int]]) -> Skipped | None:
        """Return why no prompt can be inverted; None where one can."""
        lacking = "No prompt was inverted"
        if not self.lens.traits.causal:
            reason = "exact search reads from left to right (headscan invert --method joint)"
            return left_out("inversion", lacking, reason)
        if not self.blocks:
            return left_out("inversion", lacking, "the model has no blocks")
        if not self.plan.prompts:
            return out_of_time("inversion", lacking, self.inputs.budget)
        if not prompts:
            reason = f"the text has fewer than {PROMPT} tokens"
            return left_out("inversion", lacking, reason, "--text with a longer text")
        return None

    def _read_prompts(self, prompts: list[list[int]], site: str, progress: Progress) -> PromptRead:
        started = time.perf_counter()
        inversions = []
        for prompt in prompts:
            inversion = invert(
                self.lens,
                [prompt],
                at=site,
                method="exact",
                certificate="sampled",
                seed=self.inputs.seed,
                progress=progress,
            )
            inversions.append(inversion)
        tokens = PROMPT * len(inversions)
        accuracies = [inversion.token_accuracy or 0.0 for inversion in inversions]
        accuracy = sum(accuracies) / len(accuracies)
        low, high = wilson(round(accuracy * tokens), tokens)
        return PromptRead(
            site=site,
            prompts=len(inversions),
            tokens=tokens,
            recovered=accuracy,
            interval=(low, high),
            verdict=max((inversion.verdict for inversion in inversions), key=VERDICTS.index),
            seconds=round(time.perf_counter() - started, 3),
        )

    def _count_bits(self, windows: int, site: str, progress: Progress) -> LeakedBits:
        progress("bits", 0, None, "tokens")
        max_tokens = min(TOKENS, self.inputs.reading.max_tokens or TOKENS)
        result = privacy(
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
            **self.inputs.reading_of(max_tokens),
        )
        row = result.rows[0]
        if row.bits_lower is None or row.bits_upper is None or not row.prior_bits:
            raise BadInput("the release has none")
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
        """Return how far other tokens move an output of the last block."""
        return self.attempt(
            "flow", "Flow between tokens was not measured", TokenFlow, self._measure_flow
        )

    def flow_of_control(self, control: Lens) -> float:
        """Return the same movement of random weights, which take the model's place so that its own
        can be given back.
        """
        self.lens = framed(control, self.frame)
        movements = self._movements(self.deadline.kept(self.progress))
        return sum(movements) / len(movements)

    def _measure_flow(self, progress: Progress) -> TokenFlow:
        if not self.plan.flow:
            raise OutOfTime
        if not self.blocks:
            raise BadInput("the model has no blocks")
        if len(self.token_ids) < PROMPT:
            raise TooShort(f"the text has fewer than {PROMPT} tokens")
        movements = self._movements(progress)
        interval = None
        if len(movements) > 2:
            low, high = student(movements)
            interval = (max(0.0, low), high)
        return TokenFlow(
            site=self.blocks[-1],
            prompts=len(movements),
            length=PROMPT,
            heard=sum(movements) / len(movements),
            interval=interval,
        )

    def _movements(self, progress: Progress) -> list[float]:
        """Return how far other tokens move an output over how far its own does, by prompt."""
        movements = []
        for prompt in self._prompts(self.plan.flow):
            result = measure_flow(
                self.lens,
                prompt=prompt,
                at=self.blocks[-1],
                trials=2,
                recover=False,
                seed=self.inputs.seed,
                progress=progress,
            )
            site = result.parts[0].sites[-1]
            movement = site.leak_of_earlier
            if not self.lens.traits.causal:
                movement = (site.leak_of_earlier + site.leak_of_later) / 2
            movements.append(movement / max(site.leak_own, 1e-30))
        return movements

    def removed(self) -> list[BlockRemoved]:
        """Return how the loss changes without each block, for models that have a loss."""
        if not self.blocks:
            return []
        removals = self.attempt(
            "blocks", "No block was taken out", list[BlockRemoved], self._remove_blocks
        )
        return removals or []

    def repeat(self) -> float | None:
        """Return how far the states of the last block differ between two runs of the same tokens,
        relative to their norm; None of a model without blocks or a text.
        """
        if not self.blocks or len(self.token_ids) < PROMPT:
            return None
        site = self.blocks[-1]
        length = min(WINDOW, self.lens.context_length or WINDOW)
        token_ids = torch.tensor([self.token_ids[:length]], device=self.lens.device)
        first, second = (self.lens.run(token_ids, sites=site)[site].float() for _ in range(2))
        return float((first - second).norm() / first.norm().clamp_min(1e-30))

    def scale(self) -> EmbeddingScale | None:
        """Return the loss with the input embeddings multiplied by several factors, of models that
        have a loss.
        """
        return self.attempt(
            "scale", "No scale of the embeddings was tried", EmbeddingScale, self._try_scales
        )

    def _try_scales(self, progress: Progress) -> EmbeddingScale:
        length = min(WINDOW, self.lens.context_length or WINDOW)
        affordable = self.plan.removed // len(SCALES)
        if affordable < LEAST_REMOVED:
            raise OutOfTime
        tokens = min(LEAST_REMOVED, len(self.token_ids)) // length * length
        if tokens < LEAST_REMOVED // length * length:
            raise TooShort("the text is too short")
        windows = torch.tensor(self.token_ids[:tokens]).reshape(-1, length)
        losses = []
        for number, factor in enumerate(SCALES):
            progress("scales", number, len(SCALES), "factors")
            with self.lens.patch({EMBEDDING: partial(torch.mul, other=factor)}):
                losses.append(self._losses(windows))
        means = [float(losses_of_factor.mean()) for losses_of_factor in losses]
        fall = losses[SCALES.index(1.0)] - losses[means.index(min(means))]
        return EmbeddingScale(
            factors=list(SCALES), losses=means, interval=student(fall), tokens=tokens
        )

    def _remove_blocks(self, progress: Progress) -> list[BlockRemoved]:
        blocks = len(self.blocks)
        windows = self._windows_without_block()
        loss_with_all = self._losses(windows)
        removals = []
        for number, site in enumerate(self.blocks):
            progress("blocks", number, blocks, "blocks")
            with after_call(self.lens.tap(site).module, _input_as_output):
                change = self._losses(windows) - loss_with_all
            removal = BlockRemoved(
                site=site,
                tokens=windows.numel(),
                change=float(change.mean()),
                interval=student(change),
                loss=float(loss_with_all.mean()),
            )
            removals.append(removal)
        return removals

    def _windows_without_block(self) -> torch.Tensor:
        """Return the windows [n, length] that go through the model without each block."""
        length = min(WINDOW, self.lens.context_length or WINDOW)
        affordable = self.plan.removed // len(self.blocks)
        tokens = min(MOST_REMOVED, affordable, len(self.token_ids)) // length * length
        if tokens < LEAST_REMOVED:
            if affordable < LEAST_REMOVED:
                raise OutOfTime
            raise TooShort("the text is too short")
        return torch.tensor(self.token_ids[:tokens]).reshape(-1, length)

    def _losses(self, windows: torch.Tensor) -> np.ndarray:
        """Return the mean loss of each window, in nats."""
        batch = max(1, LOGITS // (windows.shape[1] * self.lens.vocabulary_size))
        losses = []
        for token_ids in windows.split(batch):
            states = self.lens.run(token_ids.to(self.lens.device), sites="head")
            logits = states["head"][:, :-1].float()
            targets = token_ids[:, 1:].to(logits.device)
            losses_of_tokens = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), reduction="none"
            )
            losses.append(losses_of_tokens.view(targets.shape).mean(1).cpu())
        return torch.cat(losses).double().numpy()

    def remedies(self) -> TriedRemedies | None:
        """Return remedies that were fitted on half of the passages and judged by the others."""
        return self.attempt("remedies", "No remedy was tried", TriedRemedies, self._try_remedies)

    def _try_remedies(self, progress: Progress) -> TriedRemedies:
        if not self.plan.passages:
            raise OutOfTime
        passages = self._passages()
        pairs = len(passages) // 2
        site = self.lens.default_sites[-1]
        vectors = self._vectors_of_passages(passages, site, progress)
        if not np.isfinite(vectors).all():
            raise BadInput("the vectors are not finite")
        result = remedy(
            vectors[1::2],
            partners=vectors[::2],
            remedies=TRIED,
            held_out=pairs,
            export="none",
            seed=self.inputs.seed,
            progress=progress,
        )
        return TriedRemedies(
            site=site,
            length=PASSAGE,
            fitted=result.fitted,
            queries=int(result.rows[0].number("queries") or 0),
            rows=result.rows,
        )

    def _passages(self) -> list[list[int]]:
        """Return an even number of consecutive passages from the text's beginning."""
        starts = range(0, len(self.token_ids) - PASSAGE + 1, PASSAGE)
        passages = [self.token_ids[start : start + PASSAGE] for start in starts]
        passages = passages[: self.plan.passages]
        pairs = len(passages) // 2
        if pairs < PAIRS:
            raise TooShort(f"the text has {pairs} pairs of passages, fewer than {PAIRS}")
        return passages[: 2 * pairs]

    def _vectors_of_passages(
        self, passages: list[list[int]], site: str, progress: Progress
    ) -> np.ndarray:
        """Return the mean hidden state of each passage at a site."""
        batches = []
        for start in range(0, len(passages), BATCH):
            progress("passages", start, len(passages), "passages")
            states = mean_states(self.lens, passages[start : start + BATCH], [site])
            batches.append(states[site])
        return np.concatenate(batches)

    def _beginning_of_text(self, most: int) -> list[int]:
        """Return the token ids of the text's beginning, without special ones."""
        reading = self.inputs.reading
        count = min(most, reading.max_tokens or most)
        text = documents(
            self.inputs.require_text(), documents=reading.documents, field=reading.field
        )
        token_ids: list[int] = []
        for stretch in tokenise(text, self.lens.require_tokenizer()):
            token_ids += stretch.ids.tolist()
            if len(token_ids) >= count:
                break
        return token_ids[:count]

    def _prompts(self, count: int) -> list[list[int]]:
        """Return at most so many prompts, evenly spaced over the beginning of the text."""
        token_ids = self.token_ids[:TOKENS]
        step = max(PROMPT, len(token_ids) // max(1, count))
        starts = [step * number for number in range(count)]
        return [
            token_ids[start : start + PROMPT]
            for start in starts
            if start + PROMPT <= len(token_ids)
        ]


def _input_as_output(
    _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> Any:
    """Return a block's input in place of its output."""
    hidden_states = args[0] if args else kwargs["hidden_states"]
    if isinstance(output, tuple):
        return (hidden_states, *output[1:])
    return hidden_states
