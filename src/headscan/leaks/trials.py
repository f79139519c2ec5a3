"""Tests of a release beside the bits: margins of layers, inversion of embeddings by queries,
membership.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.audit import share_interval
from headscan.leaks.channels import sites_of
from headscan.leaks.mechanisms import UNCHANGED, cross_entropy, read_format, working
from headscan.leaks.result import TrialRow
from headscan.leaks.run import TESTS, LeakTest, protections, windows_of
from headscan.model.lens import Lens
from headscan.run import BadInput, Given, Interval, Option, Run
from headscan.statistics.uncertainty import (
    rank_interval,
    score_interval,
    student,
    student_quantile,
    wilson,
)
from headscan.text import documents as read_documents
from headscan.text.source import check_text

# ---- Margins of layers: how far apart two prompts' states stay, and which rounding makes them equal.

FORMATS = ("fp32", "bf16", "int8", "int4")


def nearest_of(
    states: Float[Tensor, "N w"], ids: Int[Tensor, "N T"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Each prompt's distance to the nearest other, and its least ratio of a distance to the share
    of tokens that differ.
    """
    away = torch.cdist(
        states.double(), states.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    apart = torch.cdist(ids.double(), ids.double(), p=0) / ids.shape[1]
    away = away.masked_fill(apart == 0, torch.inf)
    return away.amin(1), (away / apart.clamp_min(1e-9)).amin(1)


def low_quantile(values: Float[Tensor, " N"], level: float = 0.05) -> tuple[float, Interval]:
    """A low quantile of a sample, with the 95 % interval between two of its order statistics
    (distribution-free).

    >>> low_quantile(torch.arange(100.0))
    (5.0, (0.0, 10.0))
    """
    ordered = values.sort().values.tolist()
    count = len(values)
    low, high = (int(binom.ppf(end, count, level)) for end in (0.025, 0.975))
    return ordered[int(level * count)], (
        ordered[low - 1] if low else 0.0,
        ordered[min(high, count - 1)],
    )


def collisions(states: Float[Tensor, "N w"], form: str) -> tuple[float, Interval]:
    """The share of prompts whose states a number format makes equal to another's, with its 95 %
    interval in [0, 1].
    """
    counts = read_format(form)(states).unique(dim=0, return_counts=True)[1]
    share = 1 - int((counts == 1).sum()) / len(states)
    return share, share_interval(share, len(states))


@TESTS.register("margins")
class Margins(LeakTest):
    """Separation margin and co-Lipschitz constant of a layer's last states, and prompts that
    rounding makes equal.

    The least distance between the states of two prompts, and its least ratio to the share of tokens
    in which they differ (von Strauss, arXiv:2511.14808), in the root of the states' total variance.
    Prompts are windows of the text, and each again with one token exchanged. The least of a sample
    bounds that of all prompts from above; a change below half of it confuses none.
    """

    releases: ClassVar[tuple[str, ...]] = ("states",)
    prompts: Annotated[int, Option("Prompts of the text.", low=20, high=4000)] = 300

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        rows = windows_of(texts, self.prompts, asked["length"])
        names = sites_of(lens, asked)
        found = list[TrialRow]()
        if len(rows) < 20:
            raise BadInput(
                f"Margins need 20 prompts of {asked['length']} tokens; the text has {len(rows)}."
            )
        draw = torch.Generator().manual_seed(asked["seed"])
        moved = rows.clone()
        places = torch.randint(rows.shape[1], (len(rows),), generator=draw)
        moved[torch.arange(len(rows)), places] = rows.flatten()[
            torch.randint(rows.numel(), (len(rows),), generator=draw)
        ]
        ids = torch.cat([rows, moved]).unique(dim=0)
        parts = list[dict[str, Tensor]]()
        for some in ids.split(32):
            parts.append(
                {
                    name: whole[:, -1].float().cpu()
                    for name, whole in lens.run(some, sites=names).items()
                }
            )
            run.progress("margins", 32 * len(parts), len(ids), "prompts")
        for name in names:
            states = torch.cat([part[name] for part in parts])
            unit = float(states.double().var(0, unbiased=False).sum().sqrt())
            base: dict[str, Any] = {
                "test": self.name,
                "site": name,
                "defence": "none",
                "knows": "bound",
                "count": len(ids),
            }
            for quantity, values in zip(
                ("margin", "co-Lipschitz"), nearest_of(states, ids), strict=True
            ):
                least, (value, inside) = float(values.min()) / unit, low_quantile(values / unit)
                found.append(
                    TrialRow(
                        **base,
                        setting="least",
                        quantity=quantity,
                        value=least,
                        interval=(0.0, least),
                    )
                )
                found.append(
                    TrialRow(
                        **base,
                        setting="5 % quantile",
                        quantity=quantity,
                        value=value,
                        interval=inside,
                    )
                )
            for form in FORMATS:
                share, inside = collisions(states, form)
                found.append(
                    TrialRow(
                        **base,
                        setting=form,
                        quantity="prompts with a twin",
                        value=share,
                        interval=inside,
                    )
                )
        return found


# ---- Inversion of embeddings without the weights: an encoder that can be queried, a language model as prior, no training.


Encode = Callable[[Sequence[str]], Float[Tensor, "n w"]]
"""An encoder that can be queried: from texts to vectors of unit length."""
# What a nat a token counts, in cosine; steps without a gain; words tried everywhere; words whose
# own embeddings are asked for.
FLUENCY = 0.01
PATIENCE = 5
HINTS = 48
COMMON = 6000


def encoder_of(lens: Lens) -> Encode:
    """A model as an encoder of texts: the mean of the last block's states, special tokens included,
    of unit length.
    """
    cut = EmbeddingSlice(lens)
    tokenize = lens.require_tokenizer()

    @torch.no_grad()
    def encode(texts: Sequence[str]) -> Tensor:
        rows = [tokenize(text)["input_ids"][: lens.context_length] or [0] for text in texts]
        out = torch.zeros(len(rows), cut.width)
        lengths = torch.tensor([len(row) for row in rows])
        for length in lengths.unique():
            for some in (lengths == length).nonzero()[:, 0].split(256):
                out[some] = (
                    cut.run(torch.tensor([rows[place] for place in some])).float().cpu()[:, 0]
                )
        return out

    return encode


class QueryInversion:
    """Inversion by queries with one language model and one encoder: a target [w] in, the text found
    out.

    A beam from left to right tries what the language model expects next, and common words whose own
    embedding is near the target; texts are kept by cosine and fluency. Then words of the best text
    are exchanged, inserted, deleted while the cosine rises. The common words are encoded once;
    `queries` counts the texts encoded.
    """

    def __init__(
        self,
        encode: Encode,
        language: Lens,
        *,
        width: int = 4,
        proposals: int = 24,
        length: int = 24,
    ) -> None:
        self.ask = encode
        self.language = language
        self.width = width
        self.proposals = proposals
        self.length = length
        self.decode = language.require_tokenizer().decode
        self.queries = 0
        # merges are learned in the order in which they are needed
        ids = range(min(language.vocabulary_size, 12 * COMMON))
        self.ids = [
            index
            for index in ids
            if (word := self.decode([index])).startswith(" ") and word[1:].isalpha()
        ][:COMMON]
        self.words = [self.decode([index]).strip() for index in self.ids]
        self.vectors = self.encode(self.words or [""])

    def encode(self, texts: Sequence[str]) -> Float[Tensor, "n w"]:
        self.queries += len(texts)
        return self.ask(texts)

    @torch.no_grad()
    def __call__(self, target: Float[Tensor, " w"]) -> str:
        near = (self.vectors @ target).topk(min(HINTS, len(self.ids))).indices.tolist()
        best = (-2.0, "")
        waited = 0
        beams = [
            (
                self.language.require_tokenizer()("\n", add_special_tokens=False)["input_ids"][:1],
                0.0,
            )
        ]
        while waited < PATIENCE and len(beams[0][0]) <= self.length:
            logits = self.language.run([tokens for tokens, _ in beams], sites="head")["head"][:, -1]
            logs = logits[:, : self.language.vocabulary_size].float().log_softmax(-1)
            grown = [
                ([*tokens, index], told + float(row[index]))
                for (tokens, told), row in zip(beams, logs, strict=True)
                for index in sorted(
                    {
                        *row.topk(self.proposals).indices.tolist(),
                        *(self.ids[place] for place in near),
                    }
                )
            ]
            texts = [self.decode(tokens[1:]).strip() for tokens, _ in grown]
            fluency = torch.tensor([told / (len(tokens) - 1) for tokens, told in grown])
            scores = self.encode(texts) @ target + FLUENCY * fluency
            beams = [grown[place] for place in scores.topk(min(self.width, len(grown))).indices]
            better = max(zip(scores.tolist(), texts, strict=True))
            waited = 0 if better[0] > best[0] else waited + 1
            best = max(best, better)
        return self._exchanged(best[1].split(), target, [self.words[place] for place in near])

    def _exchanged(self, words: list[str], target: Float[Tensor, " w"], hints: list[str]) -> str:
        cosine = float(self.encode([" ".join(words)])[0] @ target)
        for _ in range(3 * self.length):
            places = range(len(words) + 1)
            tried = [
                [*words[:i], hint, *words[i + skip :]]
                for i in places
                for hint in hints
                for skip in (0, 1)
            ]
            tried += [[*words[:i], *words[i + 1 :]] for i in places if len(words) > 1]
            tried += [[*words[:i], *words[i : i + 2][::-1], *words[i + 2 :]] for i in places]
            scores = self.encode([" ".join(one) for one in tried]) @ target
            if float(scores.max()) < cosine + 1e-3:
                break
            words = tried[int(scores.argmax())]
            cosine = float(scores.max())
        return " ".join(words)


@TESTS.register("beam")
class BeamInversion(LeakTest):
    """Inversion of embeddings by queries: a beam with a language model's prior, then exchanges of
    words; nothing is trained.
    """

    releases: ClassVar[tuple[str, ...]] = ("embedding",)
    language: Annotated[str, Option("The language model that the attacker has.")] = ""
    judge: Annotated[
        str | None,
        Option("Another encoder, which says how alike the meanings are. Default: the same."),
    ] = None
    passages: Annotated[int, Option("Passages that are inverted.", low=2)] = 4

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        if not self.language:
            raise BadInput("Say which language model the attacker has: --test beam:language=MODEL.")
        language = Lens.load(self.language)
        language.identify(run, "the attacker's language model")
        if not (language.traits.predicts and language.traits.causal):
            raise BadInput(
                f"'{self.language}' is no causal language model: it expects no next token."
            )
        encode = encoder_of(lens)
        tokenizer = lens.require_tokenizer()
        rows = windows_of(texts, self.passages, asked["length"]).tolist()
        passages = [tokenizer.decode(row) for row in rows]
        guesses = list[str]()
        attack = QueryInversion(encode, language, length=asked["length"])
        for number, target in enumerate(encode(passages)):
            guesses.append(run.unit(f"beam-{number}", str, partial(attack, target)))
            run.progress("inversion by queries", number + 1, len(passages), "passages")
        judged = encode if self.judge is None else encoder_of(Lens.load(self.judge))
        return recovered(
            self.name,
            rows,
            [tokenizer(one, add_special_tokens=False)["input_ids"] for one in guesses],
            judged(passages),
            judged(guesses),
            attack.queries,
        )


def recovered(
    test: str,
    rows: list[list[int]],
    found: list[list[int]],
    truth: Tensor,
    guessed: Tensor,
    queries: int,
) -> list[TrialRow]:
    """Tokens and meaning recovered, beside what another passage gives away: tokens count as often
    as they are in both.
    """
    count = sum(map(len, rows))
    base: dict[str, Any] = {
        "test": test,
        "site": "embedding",
        "defence": "none",
        "note": f"{queries:,} texts were encoded.",
    }
    out = []
    for setting, others, vectors, knows in (
        ("by queries", found, guessed, "nothing"),
        ("another passage", rows[1:] + rows[:1], truth.roll(-1, 0), "bound"),
    ):
        share = (
            sum(
                (Counter(row) & Counter(other)).total()
                for row, other in zip(rows, others, strict=True)
            )
            / count
        )
        cosines = np.clip((truth * vectors).sum(1).double().numpy(), -1, 1)
        low, high = student(cosines)
        read, alike = (
            ("tokens read", "cosine of meanings")
            if knows == "nothing"
            else ("tokens shared", "cosine")
        )
        out += [
            TrialRow(
                **base,
                setting=setting,
                quantity=read,
                value=share,
                count=count,
                knows=knows,
                interval=share_interval(share, count),
            ),
            TrialRow(
                **base,
                setting=setting,
                quantity=alike,
                value=float(cosines.mean()),
                count=len(rows),
                knows=knows,
                interval=(max(-1.0, low), min(1.0, high)),
            ),
        ]
    return out


# ---- Membership: is a text in the training data, or in an index of embeddings?


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
    """True less false positives (Yeom et al. 2018) at the threshold that is best on the other half
    of the texts.
    """
    generator = np.random.default_rng(seed)
    hits = 0
    wrong = 0
    halves = [np.array_split(generator.permutation(scores), 2) for scores in (members, others)]
    for half in (0, 1):
        known = halves[0][half]
        strange = halves[1][half]
        levels = np.unique(np.concatenate([known, strange]))
        gains = [(known >= level).mean() - (strange >= level).mean() for level in levels]
        level = levels[int(np.argmax(gains))] if max(gains) > 0 else math.inf
        hits += int((halves[0][1 - half] >= level).sum())
        wrong += int((halves[1][1 - half] >= level).sum())
    right = wilson(hits, len(members))
    false = wilson(wrong, len(others))
    # The ends' difference: wider than need be, so that it holds for both shares at once.
    return hits / len(members) - wrong / len(others), (right[0] - false[1], right[1] - false[0])


def true_positives(members: Scores, others: Scores, false: float = 0.01) -> tuple[float, Interval]:
    """The share of members above the threshold that so few others pass; its interval holds for the
    threshold, too. The true threshold lies between two order statistics of the others (or above
    all); score intervals there, 97.5 % each.
    """
    ordered = np.sort(others)[::-1]
    count = len(others)
    fewest, most = (int(binom.ppf(level, count, false)) for level in (0.0125, 0.9875))
    strict = ordered[fewest - 1] if fewest else math.inf
    loose = ordered[most] if most < count else -math.inf
    z = student_quantile(1e9, 0.975)
    n = len(members)
    share = float((members > ordered[int(false * count)]).mean())
    low = score_interval(float((members >= strict).mean()), n, z)[0] if fewest else 0.0
    return share, (low, score_interval(float((members > loose).mean()), n, z)[1])


def numbers_of(scores: tuple[Scores, Scores], seed: int, **base: str) -> list[TrialRow]:
    """The three numbers of one score, of members and of others."""
    told = {
        "AUC": area_under(*scores),
        "advantage": advantage(*scores, seed),
        "true positives at 1 %": true_positives(*scores),
    }
    count: Any = sum(map(len, scores))
    return [
        TrialRow(**base, quantity=name, value=value, interval=ends, count=count)
        for name, (value, ends) in told.items()
    ]


# ---- Training data.


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

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        if not lens.traits.predicts:
            raise BadInput(
                f"'{lens.name}' says nothing of the next token, so that no loss tells of "
                "membership."
            )
        tokenize = lens.require_tokenizer()
        known = [
            tokenize(one.beginning(2**20), add_special_tokens=False)["input_ids"]
            for one in read_documents(self.members)
        ]
        run.identify("the members", known)
        rows = [windows_of(one, self.pieces, self.tokens) for one in (known, texts)]
        if min(map(len, rows)) < 4:
            raise BadInput(
                f"Members and others need four pieces of {self.tokens} tokens at least; they have "
                f"{[*map(len, rows)]}."
            )
        losses = [losses_of(lens, some) for some in rows]
        beside = {"loss": ([np.zeros(len(some)) for some in rows], "nothing")}
        if self.reference is not None:
            other = Lens.load(self.reference)
            other.identify(run, "the reference model")
            if other.vocabulary_size != lens.vocabulary_size:
                raise BadInput(
                    f"The reference '{other.name}' has another vocabulary than '{lens.name}'."
                )
            beside["reference model"] = ([losses_of(other, some) for some in rows], "family")
        if self.neighbours:
            generator = torch.Generator().manual_seed(asked["seed"])
            beside["neighbours"] = (
                [self._around(lens, some, generator) for some in rows],
                "nothing",
            )
        return [
            row
            for setting, (known, knows) in beside.items()
            for row in numbers_of(
                (known[0] - losses[0], known[1] - losses[1]),
                asked["seed"],
                test=self.name,
                site="model",
                defence="none",
                setting=setting,
                knows=knows,
            )
        ]

    @torch.no_grad()
    def _around(self, lens: Lens, rows: Int[Tensor, "N T"], generator: torch.Generator) -> Scores:
        """The mean loss of each piece's neighbours: one token in seven is another that the model
        expects.
        """
        total = np.zeros(len(rows))
        for _ in range(self.neighbours):
            moved = rows.clone()
            for number, part in enumerate(rows.split(16)):
                expected = lens.run(part, sites="head")["head"][:, :-1].float().cpu()
                expected.scatter_(2, part[:, 1:, None], -math.inf)
                drawn = torch.multinomial(
                    expected.softmax(-1).flatten(0, 1), 1, generator=generator
                ).view(len(part), -1)
                taken = torch.rand(drawn.shape, generator=generator) < 1 / 7
                moved[16 * number : 16 * number + len(part), 1:] = torch.where(
                    taken, drawn, part[:, 1:]
                )
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
    """Is a text in the index? By the largest cosine of its own embedding with what is released of
    half of the passages.
    """

    releases: ClassVar[tuple[str, ...]] = ("embedding",)
    passages: Annotated[int, Option("Passages of the text, half of them in the index.", low=8)] = (
        400
    )

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        cut = EmbeddingSlice(lens)
        seed = asked["seed"]
        found = list[TrialRow]()
        with torch.no_grad():
            rows = windows_of(texts, self.passages, asked["length"])
            vectors = torch.cat([cut.run(part)[:, 0] for part in rows.split(64)]).float().cpu()
        if len(vectors) < 8:
            raise BadInput(
                f"An index of half of the passages needs eight of {asked['length']} tokens; there "
                f"are {len(vectors)}."
            )
        scale = float(vectors.double().var(0, unbiased=False).mean().sqrt())
        order = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))
        inside = vectors[order[::2]]
        outside = vectors[order[1::2]]
        for defence in protections(asked):
            fit = UNCHANGED if defence is None else defence.fit(vectors, seed, lens)
            for level in dict.fromkeys(asked["noise"]):
                change = working(
                    fit.seen, fit.back, level * scale, torch.Generator().manual_seed(seed + 2)
                )
                index = change(inside)
                mark = "none" if defence is None else defence.name
                near = torch.nn.functional.normalize(index.double(), dim=1).T
                plain = [
                    torch.nn.functional.normalize(fit.back(fit.seen(some)).double(), dim=1)
                    for some in (inside, outside)
                ]
                scores = [np.asarray((some @ near).amax(1).numpy()) for some in plain]
                found += numbers_of(
                    (scores[0], scores[1]),
                    seed,
                    test=self.name,
                    site="embedding",
                    defence=mark,
                    setting=f"nearest, noise {level:g}",
                    knows="nothing",
                )
        return found
