"""`compare --changes`: what changed between a model and a fine-tune of it.

Both models, and the base with control changes of the same size, read the text part by part. Tokens
and contexts count as changed where they are beyond what the control changes do.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor

from headscan.comparison.alignment import Integers
from headscan.comparison.clusters import NOT_NEGATIVE, Clusters
from headscan.comparison.control_changes import (
    Control,
    ModelChange,
    RandomChange,
    control_fine_tunes,
)
from headscan.comparison.kinds import LIKE_CONTROLS, MOVED_CONTEXTS, MOVED_TOKENS
from headscan.comparison.result import (
    ChangedContext,
    ChangesResult,
    LayerChange,
    MovedToken,
    TokenChange,
)
from headscan.comparison.subjects import compared_subjects
from headscan.model import Lens
from headscan.model.load import Preparation
from headscan.model.partwise import PartwiseModel
from headscan.run import BadInput, Finding, Interval, Run
from headscan.scanner.sources import Subject
from headscan.states import SourcesLike, VectorSource, given_sources
from headscan.states.plan import ReadingPlan
from headscan.statistics.uncertainty import Floats, jackknife
from headscan.text import Windows
from headscan.text.source import TextLike
from headscan.text.spelling import display

DEFAULT_TOKENS = 4096
"""Tokens that are read where --max-tokens is not given."""

DEFAULT_CONTROLS = 9
"""Control changes where --draws is not given."""

FEWEST_CONTROLS = 4
"""Fewer controls give no limit."""

SCORE_FLOOR = 0.02
"""Nats that are added to the controls' standard deviation of a token."""

CONFIDENCE = 0.975
"""Of each of the two limits: a change like the controls is beyond one of them in 5 % of cases."""

LOGITS_AT_ONCE = 2**25
TOKENS_AT_ONCE = 2048
GROUPS = 16
"""Groups of documents for the intervals of tokens."""

LISTED_CONTEXTS = 20
LISTED_TOKENS = 10
SHOWN_TOKENS = 24
"""Tokens of a context that are shown."""

MOVED = 3
"""Tokens listed for a context in each direction."""

WRITTEN = 5
WRITING_POSITIONS = 64
"""Positions at which a direction is added to what the head reads."""

GIVEN = "control fine-tunes"
TRAINED = "fine-tunes on --control-text"
RANDOM = "random changes"

TRAINED_BYTES = 2 * 2**30
"""Control fine-tunes may take so much memory together."""


@dataclass(frozen=True, kw_only=True)
class ChangesPlan:
    """The options of `compare --changes`.

    Attributes:
        controls: control fine-tunes of the base; none: random changes.
        control_text: a text on which control fine-tunes are made.
        draws: the number of control changes that are drawn or made.
    """

    controls: SourcesLike | None = None
    control_text: TextLike | None = None
    draws: int = DEFAULT_CONTROLS


def measure_changes(
    sources: SourcesLike, plan: ReadingPlan, options: ChangesPlan, run: Run
) -> ChangesResult:
    """Return what the second model changed: tokens, contexts and directions, beside controls.

    Cost: a forward pass of the text for both models and for each control. Memory: one model, one
        block and the tables of the others, and the states of all.
    """
    opened = _Opened.models(sources, plan, options, run)
    base, tuned = opened.base, opened.tuned
    max_tokens = plan.reading.max_tokens or DEFAULT_TOKENS
    limited = replace(plan, reading=plan.reading.but(max_tokens=max_tokens))
    subject = Subject(base.lens.name, base.lens, limited, Run.quiet(), renamed=False)
    source = subject.reading(base.lens, plan.text)
    batches = [batch for batch in source.batches() if batch.ids.shape[1] == source.context]
    if not batches or plan.windowing.skip_first > source.context - 2:
        raise BadInput(
            f"The text has no window of {source.context} tokens, or --skip-first leaves nothing "
            "of them."
        )
    ids = torch.from_numpy(np.concatenate([batch.ids for batch in batches]))
    documents = np.concatenate([batch.documents for batch in batches])
    _check_tokens(base.lens, tuned.lens, ids.unique().tolist(), opened.shared)

    examined = _Examined(opened, ids.to(base.lens.device), documents, plan.windowing.skip_first)
    layers = examined.sweep(run)
    predictions = examined.predictions(run)
    names = [base.lens.name, tuned.lens.name]
    records = [base.record, replace(tuned.record, name=names[1])]
    parts = _Judged(opened, predictions, examined)
    token_changes, token_limit, tokens_beyond = parts.tokens()
    contexts, context_limit, contexts_beyond = parts.contexts()
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
        "divergence; a change like the controls is beyond one of both in 5 % of cases.",
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
class _Opened:
    """The base, the fine-tune and the control changes."""

    base: PartwiseModel
    tuned: PartwiseModel
    controls: list[Control]
    control_models: list[PartwiseModel]
    kind: str
    shared: int
    notes: list[str]

    @classmethod
    def models(
        cls, sources: SourcesLike, plan: ReadingPlan, options: ChangesPlan, run: Run
    ) -> "_Opened":
        """Open the models; the base is read last, so that only one is in memory as a whole.

        Raises:
            BadInput: where there are not two models, or one is no fine-tune of the other.
        """
        given = [] if options.controls is None else given_sources(options.controls)
        listed = given_sources(sources)
        if len(listed) != 2:
            raise BadInput("Name two models for --changes: the base, and its fine-tune.")
        if given and options.control_text is not None:
            raise BadInput("Give --controls or --control-text, and not both.")
        subjects = compared_subjects([*listed, *given], plan, run)
        for subject in subjects:
            if isinstance(subject.ready, VectorSource):
                raise BadInput("Stored states have no predictions: --changes is for models.")
        others = [_spilled(subject) for subject in subjects[1:]]
        base = PartwiseModel(subjects[0].load())
        for other in others:
            _check_related(base, other)
        tuned, *control_models = others

        controls: list[Control] = [ModelChange(model) for model in control_models]
        kind = GIVEN
        if options.control_text is not None:
            control_models = _trained(base.lens, plan, options, run)
            controls = [ModelChange(model) for model in control_models]
            kind = TRAINED
        elif not controls:
            seeds = range(options.draws)
            controls = [RandomChange(plan.seed * 1000 + number) for number in seeds]
            kind = RANDOM
        if len(controls) < FEWEST_CONTROLS:
            raise BadInput(
                f"Limits need {FEWEST_CONTROLS} control changes at least, not {len(controls)}."
            )
        sizes = (base.lens.width("head"), tuned.lens.width("head"))
        notes = []
        if sizes[0] != sizes[1]:
            notes.append(
                f"The vocabularies have {sizes[0]:,} and {sizes[1]:,} tokens: the first "
                f"{min(sizes):,} are compared, and their probabilities add up to 1."
            )
        return cls(base, tuned, controls, control_models, kind, min(sizes), notes)


def _spilled(subject: Subject) -> PartwiseModel:
    """Return a model whose blocks are in memory only while they run, unless the caller holds it."""
    return PartwiseModel(subject.load(), spill=isinstance(subject.ready, Preparation))


def _check_related(base: PartwiseModel, other: PartwiseModel) -> None:
    """Raise BadInput where a model is no fine-tune of the base."""
    shapes = []
    for model in (base, other):
        shapes.append((len(model.blocks), model.lens.width("embedding")))
    if shapes[0] != shapes[1]:
        raise BadInput(
            f"{other.lens.name} is no fine-tune of {base.lens.name}: they have {shapes[1][0]} and "
            f"{shapes[0][0]} blocks of width {shapes[1][1]} and {shapes[0][1]}."
        )


def _check_tokens(base: Lens, tuned: Lens, token_ids: list[int], shared: int) -> None:
    """Raise BadInput where an id of the text is not the same token in both models."""
    same = max(token_ids) < shared
    if same and base.tokenizer is not None and tuned.tokenizer is not None:
        before = display(base.tokenizer, token_ids)
        same = before == display(tuned.tokenizer, token_ids)
    if not same:
        raise BadInput(
            f"{base.name} and {tuned.name} have different tokens for the ids of this text: their "
            "predictions cannot be compared."
        )


def _trained(lens: Lens, plan: ReadingPlan, options: ChangesPlan, run: Run) -> list[PartwiseModel]:
    """Return control fine-tunes that are made here on the control text."""
    size = sum(weight.nbytes for weight in lens.model.parameters())
    if size * (options.draws + 3) > TRAINED_BYTES:
        raise BadInput(
            f"{options.draws} fine-tunes of {lens.name} take more than 2 GiB: make them "
            "elsewhere and name them with --controls, or leave out --control-text for random "
            "changes."
        )
    assert options.control_text is not None
    context = plan.windowing.context or 128
    windows = Windows(
        options.control_text,
        lens.require_tokenizer(),
        context,
        documents=plan.reading.documents,
        field=plan.reading.field,
        max_tokens=2**18,
    )
    rows = np.stack([window.ids for window in windows])
    fine_tunes = control_fine_tunes(lens, rows, options.draws, plan.seed, run.progress)
    return [PartwiseModel(fine_tune) for fine_tune in fine_tunes]


@dataclass
class _Predictions:
    """What all models predict at each position, beside the base.

    Attributes:
        divergences: KL(model ‖ base) [1 + controls, N] in nats, of the tuned model first.
        loss_change: rise of the tuned model's loss [N].
        rises: mean rise of each token's log-probability [1 + controls, V].
        group_rises: sums of the tuned model's rises by group of documents [groups, V].
        group_sizes: positions of each group.
        risen, fallen: [N, 3], the tokens that contribute most to the tuned model's divergence.
        moved_probabilities: [N, 2, 3, 2], of these tokens before and after.
    """

    divergences: Floats
    loss_change: Floats
    rises: Floats
    group_rises: Floats
    group_sizes: Floats
    risen: Integers
    fallen: Integers
    moved_probabilities: Floats


class _Examined:
    """The windows of the text as the base, the fine-tune and all controls read them.

    Attributes:
        states: [1 + 1 + controls] of [W, T, d], after the last part that was run.
    """

    def __init__(self, opened: _Opened, ids: Tensor, documents: Integers, skipped: int) -> None:
        self.opened = opened
        self.ids = ids
        self.documents = documents
        self.skipped = skipped
        self.states: list[Tensor] = []
        self.directions: dict[str, Tensor] = {}
        predicted = documents[:, skipped : documents.shape[1] - 1]
        self.clusters = Clusters.of_documents(predicted)

    def sweep(self, run: Run) -> list[LayerChange]:
        """Run all models through the embedding and all blocks; return the change of each site."""
        base = self.opened.base
        sizes: list[tuple[str, list[float], list[float]]] = []
        for number, part in enumerate(base.parts[:-1]):
            run.progress(f"changes · {part}", number, len(base.parts), "parts")
            with self._loaded(part):
                self._advance(number, part)
            sizes.append((part, *self._difference(part)))
        layers = []
        for part, size, common in sizes:
            up, down = self._written(self.directions[part])
            layers.append(
                LayerChange(
                    site=part,
                    size=size[0],
                    size_controls=float(np.median(size[1:])),
                    common=common[0],
                    common_controls=float(np.median(common[1:])),
                    writes=up,
                    removes=down,
                )
            )
        return layers

    def _loaded(self, part: str) -> ExitStack:
        """Have a part of the tuned model and of all control fine-tunes in memory."""
        contexts = ExitStack()
        for model in (self.opened.tuned, *self.opened.control_models):
            contexts.enter_context(model.ready(part))
        return contexts

    def _advance(self, number: int, part: str) -> None:
        """Run a part of every model; the controls are the base with changed weights."""
        opened = self.opened
        states: Sequence[Tensor | None] = self.states or [None] * (2 + len(opened.controls))
        after = [
            self._after(opened.base, number, states[0]),
            self._after(opened.tuned, number, states[1]),
        ]
        for control, before in zip(opened.controls, states[2:], strict=True):
            with control.applied(opened.base, opened.tuned, part):
                after.append(self._after(opened.base, number, before))
        self.states = after

    def _after(self, model: PartwiseModel, number: int, states: Tensor | None) -> Tensor:
        """Return what the embedding (part 0) or block `number − 1` of a model returns."""
        windows_at_once = max(1, TOKENS_AT_ONCE // self.ids.shape[1])
        pieces = []
        if states is None:
            for ids in self.ids.split(windows_at_once):
                pieces.append(model.lens.run(ids, sites="embedding")["embedding"].clone())
        else:
            for piece in states.split(windows_at_once):
                pieces.append(model.block(number - 1, piece))
        return torch.cat(pieces)

    def _difference(self, part: str) -> tuple[list[float], list[float]]:
        """Return the size of each model's change at a site, and the share that is common."""
        base = self.states[0][:, self.skipped :].flatten(0, 1).double()
        scale = float(base.square().sum(1).mean().sqrt())
        sizes = []
        common = []
        for number, states in enumerate(self.states[1:]):
            difference = states[:, self.skipped :].flatten(0, 1).double() - base
            energy = float(difference.square().sum(1).mean())
            mean = difference.mean(0)
            if number == 0:
                self.directions[part] = mean
            sizes.append(energy**0.5 / max(scale, 1e-300))
            common.append(float(mean.square().sum()) / max(energy, 1e-300))
        return sizes, common

    @torch.no_grad()
    def _written(self, direction: Tensor) -> tuple[list[str], list[str]]:
        """Return the tokens that a direction makes likelier, and less likely, at the head."""
        base = self.opened.base
        states = self.states[0].flatten(0, 1)
        step = max(1, len(states) // WRITING_POSITIONS)
        sampled = states[::step][:WRITING_POSITIONS][:, None]  # windows of one token
        moved = sampled + direction.to(sampled)
        change = (base.logits(moved) - base.logits(sampled))[:, 0].float().mean(0)
        order = change[: self.opened.shared].argsort(descending=True).tolist()
        tokenizer = base.lens.tokenizer
        return display(tokenizer, order[:WRITTEN]), display(tokenizer, order[::-1][:WRITTEN])

    @torch.no_grad()
    def predictions(self, run: Run) -> _Predictions:
        """Return the predictions of all models at the positions whose next token is read."""
        opened = self.opened
        vocabulary = max(opened.base.lens.width("head"), opened.tuned.lens.width("head"))
        windows, length = self.ids.shape
        at_once = max(1, LOGITS_AT_ONCE // (length * vocabulary))
        groups = self._groups()
        group_rises = np.zeros((int(groups.max()) + 1, opened.shared))
        rises = torch.zeros(1 + len(opened.controls), opened.shared, dtype=torch.float64)
        parts: list[list[Tensor]] = [[] for _ in range(5)]
        with self._loaded("head"):
            for start in range(0, windows, at_once):
                run.progress("changes · head", start, windows, "windows")
                part = slice(start, start + at_once)
                before = self._log_probabilities(opened.base, 0, part)
                after = self._log_probabilities(opened.tuned, 1, part)
                rise = after - before
                rises[0] += rise.sum(0, dtype=torch.float64).cpu()
                rows = groups[start * (len(groups) // windows) :][: len(rise)]
                for group in np.unique(rows):
                    chosen = torch.from_numpy(rows == group).to(rise.device)
                    group_rises[group] += rise[chosen].sum(0).double().cpu().numpy()
                divergences = [_divergence(after, before)]
                for number, control in enumerate(opened.controls):
                    with control.applied(opened.base, opened.tuned, "head"):
                        controlled = self._log_probabilities(opened.base, 2 + number, part)
                    rises[1 + number] += (controlled - before).sum(0, dtype=torch.float64).cpu()
                    divergences.append(_divergence(controlled, before))
                targets = self.ids[part, self.skipped + 1 :].reshape(-1, 1)
                moved, probabilities = _moved(before, after)
                parts[0].append(torch.stack(divergences).cpu())
                parts[1].append(-rise.gather(1, targets)[:, 0].double().cpu())
                parts[2].append(moved[0].cpu())
                parts[3].append(moved[1].cpu())
                parts[4].append(probabilities.cpu())
        count = len(groups)
        return _Predictions(
            divergences=torch.cat(parts[0], 1).numpy(),
            loss_change=torch.cat(parts[1]).numpy(),
            rises=(rises / count).numpy(),
            group_rises=group_rises,
            group_sizes=np.bincount(groups).astype(float),
            risen=torch.cat(parts[2]).numpy(),
            fallen=torch.cat(parts[3]).numpy(),
            moved_probabilities=torch.cat(parts[4]).numpy(),
        )

    def _log_probabilities(self, model: PartwiseModel, number: int, part: slice) -> Tensor:
        """Return log probabilities [n, shared] of the next tokens."""
        states = self.states[number][part, self.skipped : -1]
        logits = model.logits(states).flatten(0, 1)[:, : self.opened.shared]
        return logits.float().log_softmax(1)

    def _groups(self) -> Integers:
        """Return each position's group: of clusters that follow one another, at most 16."""
        of_token = self.clusters.of_token
        count = int(of_token.max()) + 1
        groups: Integers = of_token * min(GROUPS, count) // count
        return groups


def _divergence(after: Tensor, before: Tensor) -> Tensor:
    """Return KL(after ‖ before) of log probabilities [n, V], float64 [n].

    With δ the difference of the log probabilities, KL = Σ p (δ + e^−δ − 1), because both sum to 1.
    """
    gap = after - before
    terms = after.exp() * (torch.expm1(-gap) + gap)
    return terms.sum(1, dtype=torch.float64).clamp(min=0)


def _moved(before: Tensor, after: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return the tokens [n, 3] that rose and fell most, and their probabilities [n, 2, 3, 2]."""
    gap = after - before
    count = min(MOVED, gap.shape[1])
    risen = (after.exp() * gap).topk(count, 1).indices
    fallen = (before.exp() * -gap).topk(count, 1).indices
    probabilities = []
    for tokens in (risen, fallen):
        pair = [before.gather(1, tokens).exp(), after.gather(1, tokens).exp()]
        probabilities.append(torch.stack(pair, -1))
    return (risen, fallen), torch.stack(probabilities, 1)


def prediction_limit(values: Floats) -> float:
    """Return the number that another value like these exceeds in one of 40 cases.

    It is Student's prediction limit of their logarithms, and no less than the largest of them.

    >>> 2.0 < prediction_limit(np.array([1.0, 1.2, 1.5, 1.9, 2.0]))
    True
    """
    logs = np.log(np.maximum(values, 1e-300))
    count = len(logs)
    width = float(student.ppf(CONFIDENCE, count - 1)) * (1 + 1 / count) ** 0.5
    limit = float(np.exp(logs.mean() + width * logs.std(ddof=1)))
    return max(limit, float(values.max()))


def left_out_scores(rises: Floats) -> Floats:
    """Return the score of each token under each change, beside all the other changes.

    A score is the distance of a token's rise from the mean of the others, in their standard
    deviations, to which 0.02 nats are added. `rises`: [changes, V].
    """
    scores = np.empty_like(rises)
    for number in range(len(rises)):
        others = np.delete(rises, number, 0)
        spread = others.std(0, ddof=1) + SCORE_FLOOR
        scores[number] = (rises[number] - others.mean(0)) / spread
    return scores


@dataclass(frozen=True)
class _Judged:
    """The tokens and contexts of the tuned model beside the limits of the controls."""

    opened: _Opened
    predictions: _Predictions
    examined: _Examined

    def tokens(self) -> tuple[list[TokenChange], float, int]:
        """Return the tokens that are listed, the limit of scores, and how many are beyond it."""
        rises = self.predictions.rises
        # Where one token takes much probability, all others lose the same log-probability: scores
        # are of the rise beyond that of the median token.
        relative = rises - np.median(rises, axis=1, keepdims=True)
        controls = relative[1:]
        # The limit is of the controls among themselves: the change examined is not among them.
        control_scores = np.abs(left_out_scores(controls)).max(1)
        limit = prediction_limit(control_scores)
        spread = controls.std(0, ddof=1) + SCORE_FLOOR
        scores = (relative[0] - controls.mean(0)) / spread
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
        ids = self.examined.ids
        predicted = ids.shape[1] - 1 - self.examined.skipped
        window, offset = divmod(number, predicted)
        position = offset + self.examined.skipped
        tokenizer = self.opened.base.lens.require_tokenizer()
        shown = ids[window, max(0, position + 1 - SHOWN_TOKENS) : position + 1].tolist()
        divergence = float(self.predictions.divergences[0, number])
        moved = (self.predictions.risen[number], self.predictions.fallen[number])
        lists = []
        for direction, tokens in enumerate(moved):
            words = display(tokenizer, [int(token) for token in tokens])
            probabilities = self.predictions.moved_probabilities[number, direction]
            lists.append(
                [
                    MovedToken(token=word, before=float(pair[0]), after=float(pair[1]))
                    for word, pair in zip(words, probabilities, strict=True)
                ]
            )
        return ChangedContext(
            document=int(self.examined.documents[window, position]),
            window=window,
            position=position,
            text=str(tokenizer.decode(shown)),
            following=display(tokenizer, int(ids[window, position + 1])),
            divergence=divergence,
            controls=float(self.predictions.divergences[1:, number].max()),
            risen=lists[0],
            fallen=lists[1],
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
            "this text nothing in particular was learned."
        )
        findings.append(LIKE_CONTROLS.finding("fine", sentence, model=name))
    return findings


def _most_moved(context: ChangedContext) -> str:
    """Return which token rose most at a context."""
    if not context.risen:
        return ""
    token = context.risen[0]
    return f", most where '{token.token}' rose from {token.before:.2g} to {token.after:.2g}"
