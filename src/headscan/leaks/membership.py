"""Membership: whether a text is in the training data, or in an index of embeddings."""

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.defences import UNCHANGED, Fitted, working
from headscan.leaks.exposure import centred_rms, cross_entropy
from headscan.leaks.plan import windows_of
from headscan.leaks.registry import TESTS, LeakTest
from headscan.leaks.result import TrialRow
from headscan.leaks.settings import PrivacySettings
from headscan.model.framed import framed
from headscan.model.lens import Lens
from headscan.run import BadInput, Interval, Option, Run
from headscan.statistics.uncertainty import rank_interval, score_interval, student_quantile, wilson
from headscan.text import documents as read_documents
from headscan.text.source import check_text
from headscan.text.tokens import encode_text

Scores = NDArray[np.float64]
"""Scores of texts: the larger, the likelier a member."""
CHARACTERS = 2**20  # of a document of members that are read
FEWEST_PIECES = 4
FEWEST_PASSAGES = 8
EXCHANGED = 1 / 7  # share of a piece's tokens that its neighbours exchange
BATCH = 16
EMBEDDING_BATCH = 64


def area_under(members: Scores, others: Scores) -> tuple[float, Interval]:
    """Return the area under the ROC curve, ties counted half, with its interval.

    >>> area_under(np.array([3.0, 2.0]), np.array([1.0, 2.0]))[0]
    0.875
    """
    above = (members[:, None] > others).mean()
    ties = (members[:, None] == others).mean()
    area = float(above + 0.5 * ties)
    return area, rank_interval(area, len(members), len(others))


def advantage(members: Scores, others: Scores, seed: int = 0) -> tuple[float, Interval]:
    """Return true less false positives (Yeom et al. 2018), with their interval.

    The threshold is the one that is best on the other half of the texts. The interval lies between
    the differences of the shares' ends: it is wider than need be, so that it holds for both shares
    at once.
    """
    generator = np.random.default_rng(seed)
    member_halves = np.array_split(generator.permutation(members), 2)
    other_halves = np.array_split(generator.permutation(others), 2)
    hits = 0
    false_alarms = 0
    for fitted, judged in ((0, 1), (1, 0)):
        threshold = _best_threshold(member_halves[fitted], other_halves[fitted])
        hits += int((member_halves[judged] >= threshold).sum())
        false_alarms += int((other_halves[judged] >= threshold).sum())
    true_share = wilson(hits, len(members))
    false_share = wilson(false_alarms, len(others))
    interval = (true_share[0] - false_share[1], true_share[1] - false_share[0])
    return hits / len(members) - false_alarms / len(others), interval


def _best_threshold(members: Scores, others: Scores) -> float:
    """Return the score from which on texts are taken for members; infinite where none gains."""
    levels = np.unique(np.concatenate([members, others]))
    gains = [(members >= level).mean() - (others >= level).mean() for level in levels]
    return levels[int(np.argmax(gains))] if max(gains) > 0 else math.inf


def true_positives(
    members: Scores, others: Scores, false_share: float = 0.01
) -> tuple[float, Interval]:
    """Return the share of members above the threshold that so few others pass, with its interval.

    The interval holds for the threshold, too: the true threshold lies between two order statistics
    of the others (or above all); it has score intervals there, 97.5 % each.
    """
    ordered = np.sort(others)[::-1]
    count = len(others)
    fewest, most = (int(binom.ppf(level, count, false_share)) for level in (0.0125, 0.9875))
    strict = ordered[fewest - 1] if fewest else math.inf
    loose = ordered[most] if most < count else -math.inf
    z = student_quantile(1e9, 0.975)
    n = len(members)
    share = float((members > ordered[int(false_share * count)]).mean())
    low = score_interval(float((members >= strict).mean()), n, z)[0] if fewest else 0.0
    high = score_interval(float((members > loose).mean()), n, z)[1]
    return share, (low, high)


def membership_rows(row: TrialRow, members: Scores, others: Scores, seed: int) -> list[TrialRow]:
    """Return the three numbers of one score; `row` has what they share."""
    numbers = {
        "AUC": area_under(members, others),
        "advantage": advantage(members, others, seed),
        "true positives at 1 %": true_positives(members, others),
    }
    row = replace(row, count=len(members) + len(others))
    return [
        replace(row, quantity=quantity, value=value, interval=interval)
        for quantity, (value, interval) in numbers.items()
    ]


@TESTS.register("membership")
class Membership(LeakTest):
    """Is a text in the training data? By the loss, the loss less a reference model's, and less that
    of neighbours of the text.

    `members` against the verb's text, in pieces. Neighbours have other tokens that the model
    expects (after Mattern et al. 2023).
    """

    releases: ClassVar[tuple[str, ...]] = ("states", "cache", "logits", "gradient")
    members: Annotated[str, Option("A text that the model was trained on.")] = ""
    reference: Annotated[
        str | None, Option("A model with the same tokenizer that was not trained on it.")
    ] = None
    pieces: Annotated[int, Option("Pieces of each text, at most.", low=4)] = 400
    tokens: Annotated[int, Option("Tokens of a piece.", low=4)] = 64
    neighbours: Annotated[
        int, Option("Neighbours of each piece; 0 leaves the test out.", low=0)
    ] = 8

    def ready(self) -> None:
        if not self.members:
            raise BadInput("Say which text was trained on: --test membership:members=FILE.")
        check_text(self.members)

    def measure(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> list[TrialRow]:
        if not lens.traits.predicts:
            raise BadInput(
                f"'{lens.name}' does not predict the next token, so it has no loss to test for "
                "membership."
            )
        pieces = self._pieces(lens, texts, run)
        losses = [losses_of(lens, part) for part in pieces]
        seed = settings.seed
        zeros = [np.zeros(len(part)) for part in pieces]
        rows = self._rows("loss", "nothing", zeros, losses, seed)
        if self.reference is not None:
            reference = self._reference_model(lens, run)
            references = [losses_of(reference, part) for part in pieces]
            rows += self._rows("reference model", "family", references, losses, seed)
        if self.neighbours:
            generator = torch.Generator().manual_seed(seed)
            neighbours = [self._neighbour_losses(lens, part, generator) for part in pieces]
            rows += self._rows("neighbours", "nothing", neighbours, losses, seed)
        return rows

    def _rows(
        self, setting: str, knows: str, references: list[Scores], losses: list[Scores], seed: int
    ) -> list[TrialRow]:
        """Return the rows of one score: reference losses less the model's own.

        Both are of the members' pieces, then of the others'.
        """
        members, others = (
            reference - loss for reference, loss in zip(references, losses, strict=True)
        )
        row = TrialRow.blank(self.name, "model", setting=setting, knows=knows)
        return membership_rows(row, members, others, seed)

    def _pieces(
        self, lens: Lens, texts: list[list[int]], run: Run
    ) -> tuple[Int[Tensor, "M T"], Int[Tensor, "N T"]]:
        """Return pieces of the members and of the other text."""
        tokenizer = lens.require_tokenizer()
        members = [
            encode_text(tokenizer, document.beginning(CHARACTERS)).tolist()
            for document in read_documents(self.members)
        ]
        run.identify("the members", members)
        member_pieces = windows_of(members, self.pieces, self.tokens)
        other_pieces = windows_of(texts, self.pieces, self.tokens)
        counts = [len(member_pieces), len(other_pieces)]
        if min(counts) < FEWEST_PIECES:
            raise BadInput(
                f"Members and others need four pieces of {self.tokens} tokens at least; they have "
                f"{counts}."
            )
        return member_pieces, other_pieces

    def _reference_model(self, lens: Lens, run: Run) -> Lens:
        assert self.reference is not None
        reference = framed(Lens.load(self.reference), lens.frame)
        reference.identify(run, "the reference model")
        if reference.vocabulary_size != lens.vocabulary_size:
            raise BadInput(
                f"The reference '{reference.name}' has another vocabulary than '{lens.name}'."
            )
        return reference

    @torch.no_grad()
    def _neighbour_losses(
        self, lens: Lens, pieces: Int[Tensor, "N T"], generator: torch.Generator
    ) -> Scores:
        """Return the mean loss of each piece's neighbours.

        One token in seven of a neighbour is another that the model expects.
        """
        total = np.zeros(len(pieces))
        for _ in range(self.neighbours):
            neighbours = pieces.clone()
            for number, part in enumerate(pieces.split(BATCH)):
                logits = lens.run(part, sites="head")["head"]
                logits = logits[:, :-1].float().cpu()
                logits.scatter_(2, part[:, 1:, None], -math.inf)
                shares = logits.softmax(-1).flatten(0, 1)
                drawn = torch.multinomial(shares, 1, generator=generator).view(len(part), -1)
                exchange = torch.rand(drawn.shape, generator=generator) < EXCHANGED
                start = BATCH * number
                exchanged = torch.where(exchange, drawn, part[:, 1:])
                neighbours[start : start + len(part), 1:] = exchanged
            total += losses_of(lens, neighbours)
        return total / self.neighbours


@torch.no_grad()
def losses_of(lens: Lens, rows: Int[Tensor, "N T"]) -> Scores:
    """Return nats a token of each row."""
    parts = []
    for part in rows.split(BATCH):
        parts.append(cross_entropy(lens.run(part, sites="head")["head"], part))
    return np.asarray(torch.cat(parts).numpy(), dtype=np.float64)


@TESTS.register("index")
class IndexMembership(LeakTest):
    """Is a text in the index? By the largest cosine of its own embedding with what is released of
    half of the passages.
    """

    releases: ClassVar[tuple[str, ...]] = ("embedding",)
    passages: Annotated[int, Option("Passages of the text, half of them in the index.", low=8)] = (
        400
    )

    def measure(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, _run: Run
    ) -> list[TrialRow]:
        passages = windows_of(texts, self.passages, settings.length)
        vectors = _embeddings(lens, passages)
        if len(vectors) < FEWEST_PASSAGES:
            raise BadInput(
                f"An index of half of the passages needs eight of {settings.length} tokens; there "
                f"are {len(vectors)}."
            )
        unit = centred_rms(vectors.double())
        generator = torch.Generator().manual_seed(settings.seed)
        order = torch.randperm(len(vectors), generator=generator)
        indexed = vectors[order[::2]]
        absent = vectors[order[1::2]]
        rows: list[TrialRow] = []
        for defence in settings.defences:
            fit = UNCHANGED if defence is None else defence.fit(vectors, settings.seed)
            for level in settings.levels:
                generator = torch.Generator().manual_seed(settings.seed + 2)
                change = working(fit.release, fit.restore, level * unit, generator)
                index = change(indexed)
                row = TrialRow.blank(
                    self.name,
                    "embedding",
                    defence="none" if defence is None else defence.name,
                    setting=f"nearest, noise {level:g}",
                    knows="nothing",
                )
                members = _largest_cosines(indexed, fit, index)
                others = _largest_cosines(absent, fit, index)
                rows += membership_rows(row, members, others, settings.seed)
        return rows


@torch.no_grad()
def _embeddings(lens: Lens, passages: Int[Tensor, "N T"]) -> Float[Tensor, "N w"]:
    cut = EmbeddingSlice(lens)
    parts = [cut.run(part)[:, 0] for part in passages.split(EMBEDDING_BATCH)]
    return torch.cat(parts).float().cpu()


def _largest_cosines(
    vectors: Float[Tensor, "n w"], fit: Fitted, index: Float[Tensor, "m w"]
) -> Scores:
    """Return each text's largest cosine with the index; its own vector passes the defence."""
    restored = fit.restore(fit.release(vectors)).double()
    queries = torch.nn.functional.normalize(restored, dim=1)
    stored = torch.nn.functional.normalize(index.double(), dim=1)
    return np.asarray((queries @ stored.T).amax(1).numpy())
