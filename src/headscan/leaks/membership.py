"""Membership: is a text in the training data, or in an index of embeddings?"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.mechanisms import UNCHANGED, cross_entropy, working
from headscan.leaks.result import TrialRow
from headscan.leaks.run import TESTS, LeakTest, protections, windows_of
from headscan.model.lens import Lens
from headscan.run import BadInput, Given, Interval, Option, Run
from headscan.statistics.uncertainty import difference_of_shares, rank_interval, score_interval, student_quantile
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
    """True less false positives at the best threshold (Yeom et al. 2018), which is found on one half and judged on the other.

    Both halves are judged once, so that no text has a part in its own threshold.
    """
    generator, hits, wrong = np.random.default_rng(seed), 0, 0
    halves = [np.array_split(generator.permutation(scores), 2) for scores in (members, others)]
    for half in (0, 1):
        known, strange = halves[0][half], halves[1][half]
        levels = np.unique(np.concatenate([known, strange]))
        gains = [(known >= level).mean() - (strange >= level).mean() for level in levels]
        level = levels[int(np.argmax(gains))] if max(gains) > 0 else math.inf
        hits += int((halves[0][1 - half] >= level).sum())
        wrong += int((halves[1][1 - half] >= level).sum())
    right, false = hits / len(members), wrong / len(others)
    return right - false, difference_of_shares(right, len(members), false, len(others))


def true_positives(members: Scores, others: Scores, false: float = 0.01) -> tuple[float, Interval]:
    """The share of members above the threshold that so few others pass, with an interval that holds for the threshold, too.

    Of m others a number between two quantiles of Bin(m, `false`) lies above the true threshold: it lies between two of
    their scores (or above all: then nothing is shown from below). Score intervals of the share there, 97.5 % each.
    """
    ordered, count = np.sort(others)[::-1], len(others)
    fewest, most = (int(binom.ppf(level, count, false)) for level in (0.0125, 0.9875))
    strict = ordered[fewest - 1] if fewest else math.inf
    loose = ordered[most] if most < count else -math.inf
    z, n = student_quantile(1e9, 0.975), len(members)
    share = float((members > ordered[int(false * count)]).mean())
    low = score_interval(float((members >= strict).mean()), n, z)[0] if fewest else 0.0
    return share, (low, score_interval(float((members > loose).mean()), n, z)[1])


def numbers_of(
    test: str, setting: str, members: Scores, others: Scores, *, knows: str, site: str = "model", defence: str = "none",
    seed: int = 0,
) -> list[TrialRow]:  # fmt: skip
    """The three numbers of one score."""
    told = {
        "AUC": area_under(members, others), "advantage": advantage(members, others, seed),
        "true positives at 1 %": true_positives(members, others),
    }  # fmt: skip
    make = partial(TrialRow, test=test, site=site, defence=defence, setting=setting, knows=knows)
    count = len(members) + len(others)
    return [make(quantity=name, value=value, interval=ends, count=count) for name, (value, ends) in told.items()]


# ---- Training data.


@TESTS.register("membership")
@dataclass(frozen=True, kw_only=True)
class Membership(LeakTest):
    """Is a text in the training data? By the loss, the loss less a reference model's, and less that of neighbours of the text.

    Members are those of `members`, all others the verb's text; pieces of equal length are compared. Neighbours have some
    tokens replaced by ones that the model itself expects there (Mattern et al. 2023, who take a masked model).
    """

    name: ClassVar[str] = "membership"
    releases: ClassVar[tuple[str, ...]] = ("states", "cache", "logits", "gradient")
    members: Annotated[str, Option("A text that the model was trained on.")] = ""
    reference: Annotated[str | None, Option("A model with the same tokenizer that was not trained on it.")] = None
    pieces: Annotated[int, Option("Pieces of each text, at most.", low=4)] = 400
    tokens: Annotated[int, Option("Tokens of a piece.", low=4)] = 64
    neighbours: Annotated[int, Option("Neighbours of each piece; 0 leaves the test out.", low=0)] = 8

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        if not self.members:
            raise BadInput("Say which text was trained on: --test membership:members=FILE.")
        if not lens.traits.predicts:
            raise BadInput(f"'{lens.name}' says nothing of the next token, so that no loss tells of membership.")
        check_text(self.members)
        tokenize = lens.require_tokenizer()
        known = [tokenize(one.beginning(2**20), add_special_tokens=False)["input_ids"] for one in read_documents(self.members)]
        run.identify("the members", known)
        rows = [windows_of(one, self.pieces, self.tokens) for one in (known, texts)]
        if min(map(len, rows)) < 4:
            raise BadInput(
                f"Members and others need four pieces of {self.tokens} tokens at least; they have {[*map(len, rows)]}."
            )
        losses = [losses_of(lens, some) for some in rows]
        scores = {"loss": ([-one for one in losses], "nothing")}
        if self.reference is not None:
            other = Lens.load(self.reference)
            if other.vocabulary_size != lens.vocabulary_size:
                raise BadInput(f"The reference '{other.name}' has another vocabulary than '{lens.name}'.")
            apart = [losses_of(other, some) - one for some, one in zip(rows, losses, strict=True)]
            scores["reference model"] = (apart, "family")
        if self.neighbours:
            generator = torch.Generator().manual_seed(asked["seed"])
            around = [self._around(lens, some, generator) - one for some, one in zip(rows, losses, strict=True)]
            scores["neighbours"] = (around, "nothing")
        found = list[TrialRow]()
        for setting, ((members, others), knows) in scores.items():
            found += numbers_of(self.name, setting, members, others, knows=knows, seed=asked["seed"])
        return found

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
@dataclass(frozen=True, kw_only=True)
class IndexMembership(LeakTest):
    """Is a text in the index? By the largest cosine of its own embedding with what is released of half of the passages."""

    name: ClassVar[str] = "index"
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
                scores = [nearest_cosine(fit.back(fit.seen(some)), index) for some in (inside, outside)]
                found += numbers_of(
                    self.name, f"nearest, noise {level:g}", *scores, knows="nothing", site="embedding", defence=mark, seed=seed
                )  # fmt: skip
                if level and defence is None:
                    # Unit vectors are 2 apart at most: the total variation of two Gaussians (Le Cam).
                    most = math.erf(1 / (level * scale * math.sqrt(2)))
                    found.append(TrialRow(
                        test=self.name, site="embedding", defence=mark, setting=f"any attack, noise {level:g}",
                        quantity="advantage", value=most, interval=(0.0, most), count=len(vectors), knows="bound",
                    ))  # fmt: skip
        return found


def nearest_cosine(texts: Float[Tensor, "N w"], index: Float[Tensor, "M w"]) -> Scores:
    """The largest cosine of each text's vector with one of the index."""
    one, other = (torch.nn.functional.normalize(part.double(), dim=1) for part in (texts, index))
    return np.asarray((one @ other.T).amax(1).numpy())
