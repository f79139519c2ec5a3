"""The table of first outputs, and the order of candidates that it gives.

The output at position t of a token v after a prefix, F_t(v), is not known before it is computed.
F_0(v), at the first position, and F_c(v), after some other text, are in the cached table. Every
candidate that was tried, right or wrong, shows F_t at one token: from them a and a shift are fitted
in F_t = F_0 + a (F_c - F_0) + shift, and candidates are ranked by the distance of the predicted
F_t(v) to the target. The fit of one position is the first guess at the next. This is cheap, and
best for vocabularies of some ten thousand tokens.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor

from headscan.inversion.cache import cache_path, write_cache
from headscan.inversion.candidates import Ranking
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import Progress

WORTH_KEEPING = 8_000_000  # below this many numbers a table is made faster than it is read
VERSION = 4
# Tokens before the table's second part: enough that attention is shared out, few enough to cost
# nothing.
CONTEXT = 4
STEP = 512
ROWS = 4096  # rows of the table whose products are computed at once
ANCHORS = 192  # further candidates add time and little else to a fit
NEAREST = 8  # candidates whose mean is the shift of a fit


@dataclass
class FirstPositions:
    """The outputs of every token, alone and after a few random tokens.

    Attributes:
        outputs: F_0: float32, at position 0, with nothing before it.
        change: F_c - F_0: the change that a short text before it causes.
        built: tokens that were run now; 0 if the table was read from disk.
    """

    outputs: Float[Tensor, "V w"]
    change: Float[Tensor, "V w"]
    built: int = 0

    @cached_property
    def products(self) -> Float[Tensor, "3 V"]:
        """Return F_0.F_0, F_0.change and change.change of each token."""
        parts = []
        rows = zip(self.outputs.split(ROWS), self.change.split(ROWS), strict=True)
        for first, change in rows:
            pairs = ((first, first), (first, change), (change, change))
            parts.append(torch.stack([(left * right).sum(1) for left, right in pairs]))
        return torch.cat(parts, dim=1)


def table_of(cut: SlicedModel, *, progress: Progress | None = None) -> FirstPositions:
    """Return the table of a slice: from memory, from the cache folder, or computed.

    Large tables are stored in the cache folder. Cost: two passes of the vocabulary.
    """
    return cut.once("table of one-token outputs", lambda: _read_or_build(cut, progress))


def _read_or_build(cut: SlicedModel, progress: Progress | None) -> FirstPositions:
    if cut.vocabulary_size * cut.width < WORTH_KEEPING:
        return _build(cut, progress)
    path = cache_path(cut, "tables", VERSION)
    if path.is_file():
        stored = load_file(path)
        device = cut.lens.device
        return FirstPositions(stored["outputs"].to(device), stored["change"].to(device))
    table = _build(cut, progress)
    write_cache(path, {"outputs": table.outputs, "change": table.change})
    return table


@torch.no_grad()
def _build(cut: SlicedModel, progress: Progress | None) -> FirstPositions:
    longest = cut.lens.context_length or CONTEXT + 1
    length = min(CONTEXT, longest - 1)
    generator = torch.Generator().manual_seed(0)
    context = torch.randint(0, cut.vocabulary_size, (1, length), generator=generator)

    outputs = _outputs_alone(cut, progress)
    if length == 0:  # a model of one position has no later ones
        return FirstPositions(outputs, torch.zeros_like(outputs), built=len(outputs))
    later = _outputs_after(cut, context, progress)
    return FirstPositions(outputs, later - outputs, built=2 * len(outputs))


def _outputs_alone(cut: SlicedModel, progress: Progress | None) -> Tensor:
    """Return F_0. There is nothing before the first position, so that no cache is needed."""
    parts = []
    done = 0
    for tokens in torch.arange(cut.vocabulary_size, device=cut.lens.device).split(STEP):

        def run(part: slice, tokens: Tensor = tokens) -> Tensor:
            vectors = cut.embed(tokens[part])[:, None]
            return cut.states(inputs_embeds=vectors)[:, 0].float()

        parts.append(cut.in_batches(run, len(tokens), STEP))
        done += len(tokens)
        _report(cut, done, progress)
    return _finite(torch.cat(parts))


def _outputs_after(cut: SlicedModel, context: Tensor, progress: Progress | None) -> Tensor:
    """Return F_c after a context [1, t]."""
    prefix = Prefix(cut, context)
    parts = []
    done = cut.vocabulary_size
    for tokens in torch.arange(cut.vocabulary_size, device=cut.lens.device).split(STEP):
        parts.append(prefix.evaluate(torch.zeros_like(tokens), tokens))
        done += len(tokens)
        _report(cut, done, progress)
    return _finite(torch.cat(parts))


def _report(cut: SlicedModel, done: int, progress: Progress | None) -> None:
    if progress:
        progress("table of the vocabulary", done, 2 * cut.vocabulary_size, "tokens")


def _finite(outputs: Tensor) -> Tensor:
    """Replace numbers that are not finite: they predict nothing.

    Candidates themselves are judged by the outputs that they really give.
    """
    return outputs.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class TableFit:
    """The fit of F_t by the table: F_0 + share (F_c - F_0) + shift."""

    share: float
    shift: Tensor


class TableRanking(Ranking):
    """An order of candidates by the predicted distance of their output to the target [w']."""

    def __init__(
        self, table: FirstPositions, target: Tensor, allowed: Tensor | None, guess: TableFit | None
    ) -> None:
        """Set the table, the target, the allowed tokens and the fit of the position before."""
        super().__init__(table.outputs[:, 0], allowed)
        self.table = table
        self.target = target
        self.tokens = torch.empty(0, dtype=torch.int64, device=target.device)
        self.outputs = target.new_empty(0, len(target))
        self.guess = guess or TableFit(0.0, torch.zeros_like(target))
        self._fit: TableFit | None = None

    def distances(self) -> Float[Tensor, " V"]:
        return self._squares(self.target)

    def distances_from(self, token: int) -> Float[Tensor, " V"]:
        last = (self.tokens == token).nonzero()[-1, 0]
        return self._squares(self.outputs[last])

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        self.tokens = torch.cat([self.tokens, tokens])
        self.outputs = torch.cat([self.outputs, outputs])
        self._fit = None

    def fit(self) -> TableFit:
        """Return the fit to the candidates tried so far; the first guess where there are none."""
        if self._fit is None:
            self._fit = self._fitted() if len(self.tokens) else self.guess
        return self._fit

    def _fitted(self) -> TableFit:
        distances = (self.outputs - self.target).norm(dim=1)
        order = distances.topk(min(ANCHORS, len(self.tokens)), largest=False).indices
        tokens = self.tokens[order]
        change = self.table.change[tokens]
        difference = self.outputs[order] - self.table.outputs[tokens]

        centred = change - change.mean(0)
        strength = (centred**2).sum()
        # The first guess counts as much as two candidates do.
        weight = 2 * (change**2).sum(1).mean()
        product = (centred * difference).sum() + weight * self.guess.share
        slope = product / (strength + weight).clamp_min(1e-30)
        share = float(slope) if float(strength + weight) > 0 else 0.0
        shift = (difference - share * change)[:NEAREST].mean(0)
        return TableFit(share, shift)

    def _squares(self, goal: Tensor) -> Tensor:
        """Return the squared distances of the predicted outputs to a goal, up to a constant."""
        table = self.table
        fit = self.fit()
        plain, mixed, changed = table.products
        shifted = goal - fit.shift
        squares: Tensor = plain - 2 * (table.outputs @ shifted)
        if fit.share:
            cross = 2 * fit.share * (mixed - table.change @ shifted)
            squares = squares + cross + fit.share**2 * changed
        return squares
