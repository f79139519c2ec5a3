"""Membership: is a text in the training data, or in an index of embeddings?"""

import math
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.mechanisms import UNCHANGED, cross_entropy, working
from headscan.leaks.result import TrialRow
from headscan.leaks.run import TESTS, LeakTest, protections, windows_of
from headscan.model.lens import Lens
from headscan.run import BadInput, Given, Interval, Option, Run
from headscan.statistics.uncertainty import rank_interval, score_interval, student_quantile, wilson
from headscan.text import documents as read_documents
from headscan.text.source import check_text

Scores = NDArray[np.float64]


# ---- What scores tell of membership: the larger, the more like a member.


def area_under(members: Scores, others: Scores) -> tuple[float, Interval]:
    """The area under the ROC curve, ties counted half, with its interval.

    >>> area_under(np.array([3.0, 2.0]), np.array([1.0, 2.0]))[0]
    0.875
    """
    above = (members[:, None] > others).mean() + 0.5 * (members[:, None] == others).mean()
    return float(above), rank_interval(float(above), len(members), len(others))


def advantage(members: Scores, others: Scores, seed: int = 0) -> tuple[float, Interval]:
    """True less false positives (Yeom et al. 2018) at the threshold that is best on the other half of the texts."""
    generator, hits, wrong = np.random.default_rng(seed), 0, 0
    halves = [np.array_split(generator.permutation(scores), 2) for scores in (members, others)]
    for half in (0, 1):
        known, strange = halves[0][half], halves[1][half]
        levels = np.unique(np.concatenate([known, strange]))
        gains = [(known >= level).mean() - (strange >= level).mean() for level in levels]
        level = levels[int(np.argmax(gains))] if max(gains) > 0 else math.inf
        hits += int((halves[0][1 - half] >= level).sum())
        wrong += int((halves[1][1 - half] >= level).sum())
    right, false = wilson(hits, len(members)), wilson(wrong, len(others))
    # The ends' difference: wider than need be, so that it holds for both shares at once.
    return hits / len(members) - wrong / len(others), (right[0] - false[1], right[1] - false[0])


def true_positives(members: Scores, others: Scores, false: float = 0.01) -> tuple[float, Interval]:
    """The share of members above the threshold that so few others pass; its interval holds for the threshold, too. The true
    threshold lies between two order statistics of the others (or above all); score intervals there, 97.5 % each."""
    ordered, count = np.sort(others)[::-1], len(others)
    fewest, most = (int(binom.ppf(level, count, false)) for level in (0.0125, 0.9875))
    strict = ordered[fewest - 1] if fewest else math.inf
    loose = ordered[most] if most < count else -math.inf
    z, n = student_quantile(1e9, 0.975), len(members)
    share = float((members > ordered[int(false * count)]).mean())
    low = score_interval(float((members >= strict).mean()), n, z)[0] if fewest else 0.0
    return share, (low, score_interval(float((members > loose).mean()), n, z)[1])


def numbers_of(scores: tuple[Scores, Scores], seed: int, **base: str) -> list[TrialRow]:
    """The three numbers of one score, of members and of others."""
    told = {"AUC": area_under(*scores), "advantage": advantage(*scores, seed), "true positives at 1 %": true_positives(*scores)}
    count: Any = sum(map(len, scores))
    return [TrialRow(**base, quantity=name, value=value, interval=ends, count=count) for name, (value, ends) in told.items()]


# ---- Training data.


@TESTS.register("membership")
class Membership(LeakTest):
    """Is a text in the training data? By the loss, the loss less a reference model's, and less that of neighbours of the text.

    `members` against the verb's text, in pieces. Neighbours have other tokens that the model expects (after Mattern et al. 2023).
    """

    releases: ClassVar[tuple[str, ...]] = ("states", "cache", "logits", "gradient")
    members: Annotated[str, Option("A text that the model was trained on.")] = ""
    reference: Annotated[str | None, Option("A model with the same tokenizer that was not trained on it.")] = None
    pieces: Annotated[int, Option("Pieces of each text, at most.", low=4)] = 400
    tokens: Annotated[int, Option("Tokens of a piece.", low=4)] = 64
    neighbours: Annotated[int, Option("Neighbours of each piece; 0 leaves the test out.", low=0)] = 8

    def ready(self) -> None:
        if not self.members:
            raise BadInput("Say which text was trained on: --test membership:members=FILE.")
        check_text(self.members)

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        if not lens.traits.predicts:
            raise BadInput(f"'{lens.name}' says nothing of the next token, so that no loss tells of membership.")
        tokenize = lens.require_tokenizer()
        known = [tokenize(one.beginning(2**20), add_special_tokens=False)["input_ids"] for one in read_documents(self.members)]
        run.identify("the members", known)
        rows = [windows_of(one, self.pieces, self.tokens) for one in (known, texts)]
        if min(map(len, rows)) < 4:
            raise BadInput(
                f"Members and others need four pieces of {self.tokens} tokens at least; they have {[*map(len, rows)]}."
            )
        losses = [losses_of(lens, some) for some in rows]
        beside = {"loss": ([np.zeros(len(some)) for some in rows], "nothing")}
        if self.reference is not None:
            other = Lens.load(self.reference)
            other.identify(run)
            if other.vocabulary_size != lens.vocabulary_size:
                raise BadInput(f"The reference '{other.name}' has another vocabulary than '{lens.name}'.")
            beside["reference model"] = ([losses_of(other, some) for some in rows], "family")
        if self.neighbours:
            generator = torch.Generator().manual_seed(asked["seed"])
            beside["neighbours"] = ([self._around(lens, some, generator) for some in rows], "nothing")
        return [
            row
            for setting, (known, knows) in beside.items()
            for row in numbers_of(
                (known[0] - losses[0], known[1] - losses[1]), asked["seed"], test=self.name, site="model", defence="none",
                setting=setting, knows=knows,
            )
        ]  # fmt: skip

    @torch.no_grad()
    def _around(self, lens: Lens, rows: Int[Tensor, "N T"], generator: torch.Generator) -> Scores:
        """The mean loss of each piece's neighbours: one token in seven is another that the model expects."""
        total = np.zeros(len(rows))
        for _ in range(self.neighbours):
            moved = rows.clone()
            for number, part in enumerate(rows.split(16)):
                expected = lens.run(part, sites="head")["head"][:, :-1].float().cpu()
                expected.scatter_(2, part[:, 1:, None], -math.inf)
                drawn = torch.multinomial(expected.softmax(-1).flatten(0, 1), 1, generator=generator).view(len(part), -1)
                taken = torch.rand(drawn.shape, generator=generator) < 1 / 7
                moved[16 * number : 16 * number + len(part), 1:] = torch.where(taken, drawn, part[:, 1:])
            total += losses_of(lens, moved)
        return total / self.neighbours


@torch.no_grad()
def losses_of(lens: Lens, rows: Int[Tensor, "N T"]) -> Scores:
    """Nats a token of each row."""
    parts = [cross_entropy(lens.run(part, sites="head")["head"], part) for part in rows.split(16)]
    return np.asarray(torch.cat(parts).numpy(), dtype=np.float64)


# ---- An index.


@TESTS.register("index")
class IndexMembership(LeakTest):
    """Is a text in the index? By the largest cosine of its own embedding with what is released of half of the passages."""

    releases: ClassVar[tuple[str, ...]] = ("embedding",)
    passages: Annotated[int, Option("Passages of the text, half of them in the index.", low=8)] = 400

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        cut, seed, found = EmbeddingSlice(lens), asked["seed"], list[TrialRow]()
        with torch.no_grad():
            rows = windows_of(texts, self.passages, asked["length"])
            vectors = torch.cat([cut.run(part)[:, 0] for part in rows.split(64)]).float().cpu()
        if len(vectors) < 8:
            raise BadInput(f"An index of half of the passages needs eight of {asked['length']} tokens; there are {len(vectors)}.")
        scale = float(vectors.double().var(0, unbiased=False).mean().sqrt())
        order = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))
        inside, outside = vectors[order[::2]], vectors[order[1::2]]
        for defence in protections(asked):
            fit = UNCHANGED if defence is None else defence.fit(vectors, seed, lens)
            for level in dict.fromkeys(asked["noise"]):
                change = working(fit.seen, fit.back, level * scale, torch.Generator().manual_seed(seed + 2))
                index, mark = change(inside), "none" if defence is None else defence.name
                near = torch.nn.functional.normalize(index.double(), dim=1).T
                plain = [torch.nn.functional.normalize(fit.back(fit.seen(some)).double(), dim=1) for some in (inside, outside)]
                scores = [np.asarray((some @ near).amax(1).numpy()) for some in plain]
                found += numbers_of(
                    (scores[0], scores[1]), seed, test=self.name, site="embedding", defence=mark,
                    setting=f"nearest, noise {level:g}", knows="nothing",
                )  # fmt: skip
        return found
