"""`compare --changes`: what changed between a model and a fine-tune of it.

Both models, and the base with control changes of the same size, read the text part by part. Tokens
and contexts count as changed where they are beyond what the control changes do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from headscan.comparison.changed_models import RANDOM, ChangedModels, ChangesPlan, check_tokens
from headscan.comparison.changed_predictions import ChangedPredictions, ChangeReader
from headscan.comparison.clusters import NOT_NEGATIVE
from headscan.comparison.control_scores import prediction_limit, token_scores
from headscan.comparison.kinds import LIKE_CONTROLS, MOVED_CONTEXTS, MOVED_TOKENS
from headscan.comparison.moved_contexts import LISTED_CONTEXTS, PredictionText
from headscan.comparison.result import (
    ChangedContext,
    ChangesResult,
    TokenChange,
)
from headscan.run import BadInput, Finding, Interval, Run
from headscan.scanner.sources import Subject
from headscan.states import SourcesLike
from headscan.states.plan import ReadingPlan
from headscan.statistics.uncertainty import jackknife
from headscan.text.spelling import display

DEFAULT_TOKENS = 4096
"""Tokens that are read where --max-tokens is not given."""

LISTED_TOKENS = 10


def measure_changes(
    sources: SourcesLike, plan: ReadingPlan, options: ChangesPlan, run: Run
) -> ChangesResult:
    """Return what the second model changed: tokens, contexts and directions, beside controls.

    Cost: a forward pass of the text for both models and for each control. Memory: one model, one
        block and the tables of the others, and the states of all.
    """
    opened = ChangedModels.models(sources, plan, options, run)
    base, tuned = opened.base, opened.tuned
    max_tokens = plan.reading.max_tokens or DEFAULT_TOKENS
    limited = replace(plan, reading=plan.reading.but(max_tokens=max_tokens))
    subject = Subject(base.lens.name, base.lens, limited, Run.quiet(), renamed=False)
    source = subject.reading(base.lens, plan.text)
    ids_of_windows, documents = source.whole_windows()
    skip_first = plan.windowing.skip_first
    if not len(ids_of_windows) or skip_first > source.context - 2:
        raise BadInput(
            f"The text has no window of {source.context} tokens, or --skip-first leaves nothing "
            "of them."
        )
    ids = torch.from_numpy(ids_of_windows)
    check_tokens(base.lens, tuned.lens, ids.unique().tolist(), opened.shared)

    added = len(source.frame.front)
    examined = ChangeReader(opened, ids.to(base.lens.device), documents, added + skip_first, added)
    layers = examined.sweep(run)
    predictions = examined.predictions(run)
    names = [base.lens.name, tuned.lens.name]
    records = [base.record, replace(tuned.record, name=names[1])]
    judged = _Judged(opened, predictions, examined)
    token_changes, token_limit, tokens_beyond = judged.tokens()
    contexts, context_limit, contexts_beyond = judged.contexts()
    findings = _findings(
        names[1], opened.kind, token_changes, tokens_beyond, contexts, contexts_beyond
    )
    means = examined.clusters.means(
        {"kl": predictions.divergences[0], "loss": predictions.loss_change},
        {"kl": NOT_NEGATIVE},
    )
    notes = [
        f"Controls: {len(opened.controls)} {opened.kind}, each with the size of the examined "
        "change, matrix by matrix. Limits are prediction limits of their largest score and "
        "divergence; a change like the controls is beyond one of both in 2 % of cases.",
        *opened.notes,
    ]
    return ChangesResult(
        protocol=run.protocol(
            text=source.text(), device=records[0].device, dtype=records[0].dtype, notes=notes
        ),
        models=records,
        token_changes=token_changes,
        contexts=contexts,
        layers=layers,
        control_kind=opened.kind,
        controls=len(opened.controls),
        token_limit=token_limit,
        context_limit=context_limit,
        tokens_beyond=tokens_beyond,
        contexts_beyond=contexts_beyond,
        divergence=cast(float, means["kl"]),
        divergence_interval=cast(Interval | None, means["kl_interval"]),
        divergence_controls=float(np.mean(predictions.divergences[1:])),
        loss_change=cast(float, means["loss"]),
        loss_change_interval=cast(Interval | None, means["loss_interval"]),
        shared=opened.shared,
        tokens=len(predictions.loss_change),
        findings=findings,
    )


@dataclass(frozen=True)
class _Judged:
    """The tokens and contexts of the tuned model beside the limits of the controls."""

    opened: ChangedModels
    predictions: ChangedPredictions
    examined: ChangeReader

    def tokens(self) -> tuple[list[TokenChange], float, int]:
        """Return the tokens that are listed, the limit of scores, and how many are beyond it."""
        rises = self.predictions.rises
        scores, limit = token_scores(rises, self.predictions.likelihoods)
        beyond = np.abs(scores) > limit
        order = np.argsort(-scores, kind="stable")
        listed = [*order[:LISTED_TOKENS], *order[::-1][:LISTED_TOKENS]]
        if beyond.any():
            chosen = [token for token in np.argsort(-np.abs(scores)) if beyond[token]]
            listed = chosen[: 2 * LISTED_TOKENS]
        words = display(self.opened.base.lens.tokenizer, [int(token) for token in listed])
        changes = []
        for token, word in zip(listed, words, strict=True):
            changes.append(
                TokenChange(
                    token_id=int(token),
                    token=word,
                    rise=float(rises[0, token]),
                    rise_interval=self._interval(int(token)),
                    controls=float(rises[1:, token].mean()),
                    score=float(scores[token]),
                    beyond=bool(beyond[token]),
                )
            )
        return changes, limit, int(beyond.sum())

    def _interval(self, token: int) -> Interval | None:
        """Return the interval of a token's mean rise, by groups of documents."""
        sums = self.predictions.group_rises[:, token]
        sizes = self.predictions.group_sizes
        total = float(sums.sum())
        count = float(sizes.sum())
        left_out: list[float | None] = []
        for part, size in zip(sums, sizes, strict=True):
            left_out.append(float((total - part) / (count - size)) if size < count else None)
        running = self.examined.clusters.running
        ends = jackknife(total / count, left_out, sizes, running=running)
        return None if ends is None else (ends[0], ends[1])

    def contexts(self) -> tuple[list[ChangedContext], float, int]:
        """Return the contexts that are listed, the limit in nats, and how many are beyond it."""
        divergences = self.predictions.divergences
        limit = prediction_limit(divergences[1:].max(1))
        tuned = divergences[0]
        order = np.argsort(-tuned, kind="stable")[:LISTED_CONTEXTS]
        contexts = [self._context(int(number), limit) for number in order]
        return contexts, limit, int((tuned > limit).sum())

    def _context(self, number: int, limit: float) -> ChangedContext:
        divergences = self.predictions.divergences[:, number]
        divergence = float(divergences[0])
        text = PredictionText(
            self.examined.ids,
            self.examined.documents,
            self.examined.skipped,
            self.opened.base.lens.require_tokenizer(),
            self.examined.added,
        )
        context = text.context(number, divergence, self.predictions.moved.at(number))
        return ChangedContext(
            **vars(context),
            controls=float(divergences[1:].max()),
            beyond=divergence > limit,
        )


def _caution(kind: str) -> str:
    """Return what random controls cannot tell."""
    if kind != RANDOM:
        return ""
    return (
        " Any fine-tune moves tokens further than random changes do: control fine-tunes "
        "(--controls, --control-text) tell what is peculiar to this one."
    )


def _findings(
    name: str,
    kind: str,
    tokens: Sequence[TokenChange],
    tokens_beyond: int,
    contexts: Sequence[ChangedContext],
    contexts_beyond: int,
) -> list[Finding]:
    """Return the findings about the tuned model."""
    findings = []
    if tokens_beyond:
        words = ", ".join(f"'{change.token}'" for change in tokens[:5] if change.beyond)
        count = f"{tokens_beyond:,} token{'s' if tokens_beyond > 1 else ''}"
        sentence = (
            f"{count} of the vocabulary moved further than under the {kind} of the same size: "
            f"{words}.{_caution(kind)}"
        )
        value = float(tokens_beyond)
        findings.append(MOVED_TOKENS.finding("notice", sentence, model=name, value=value))
    if contexts_beyond:
        [context, *_] = contexts
        count = f"{contexts_beyond:,} position{'s' if contexts_beyond > 1 else ''}"
        sentence = (
            f"At {count} the prediction moved further than anywhere under the {kind} of the same "
            f"size{_most_moved(context)}.{_caution(kind)}"
        )
        value = float(contexts_beyond)
        findings.append(MOVED_CONTEXTS.finding("notice", sentence, model=name, value=value))
    if not findings:
        sentence = (
            f"No token and no context moved further than under the {kind} of the same size: on "
            "this text the change is like theirs."
        )
        findings.append(LIKE_CONTROLS.finding("fine", sentence, model=name))
    return findings


def _most_moved(context: ChangedContext) -> str:
    """Return which token rose most at a context."""
    if not context.risen:
        return ""
    token = context.risen[0]
    return f", most where '{token.token}' rose from {token.before:.2g} to {token.after:.2g}"
