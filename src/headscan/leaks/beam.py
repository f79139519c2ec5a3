"""Inversion of embeddings without the weights: an encoder that can be queried, a language model as prior, no training."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.audit import share_interval
from headscan.leaks.result import TrialRow
from headscan.leaks.run import TESTS, LeakTest, windows_of
from headscan.model.lens import Lens
from headscan.run import BadInput, Given, Option, Run
from headscan.statistics.uncertainty import student

Encode = Callable[[Sequence[str]], Float[Tensor, "n w"]]
"""An encoder that can be queried: from texts to vectors of unit length."""
# What a nat a token counts, in cosine; steps without a gain; words tried everywhere; words whose own embeddings are asked for.
FLUENCY, PATIENCE, HINTS, COMMON = 0.01, 5, 48, 6000


def encoder_of(lens: Lens) -> Encode:
    """A model as an encoder of texts: the mean of the last block's states, special tokens included, of unit length."""
    cut, tokenize = EmbeddingSlice(lens), lens.require_tokenizer()

    @torch.no_grad()
    def encode(texts: Sequence[str]) -> Tensor:
        rows = [tokenize(text)["input_ids"][: lens.context_length] or [0] for text in texts]
        out, lengths = torch.zeros(len(rows), cut.width), torch.tensor([len(row) for row in rows])
        for length in lengths.unique():
            for some in (lengths == length).nonzero()[:, 0].split(256):
                out[some] = cut.run(torch.tensor([rows[place] for place in some])).float().cpu()[:, 0]
        return out

    return encode


class QueryInversion:
    """Inversion by queries with one language model and one encoder: a target [w] in, the text found out.

    A beam from left to right tries what the language model expects next, and common words whose own embedding is near the
    target; texts are kept by cosine and fluency. Then words of the best text are exchanged, inserted, deleted while the
    cosine rises. The common words are encoded once; `queries` counts the texts encoded.
    """

    def __init__(self, encode: Encode, language: Lens, *, width: int = 4, proposals: int = 24, length: int = 24) -> None:
        self.ask, self.language, self.width, self.proposals, self.length = encode, language, width, proposals, length
        self.decode, self.queries = language.require_tokenizer().decode, 0
        ids = range(min(language.vocabulary_size, 12 * COMMON))  # merges are learned in the order in which they are needed
        self.ids = [index for index in ids if (word := self.decode([index])).startswith(" ") and word[1:].isalpha()][:COMMON]
        self.words = [self.decode([index]).strip() for index in self.ids]
        self.vectors = self.encode(self.words or [""])

    def encode(self, texts: Sequence[str]) -> Float[Tensor, "n w"]:
        self.queries += len(texts)
        return self.ask(texts)

    @torch.no_grad()
    def __call__(self, target: Float[Tensor, " w"]) -> str:
        near = (self.vectors @ target).topk(min(HINTS, len(self.ids))).indices.tolist()
        best, waited = (-2.0, ""), 0
        beams = [(self.language.require_tokenizer()("\n", add_special_tokens=False)["input_ids"][:1], 0.0)]
        while waited < PATIENCE and len(beams[0][0]) <= self.length:
            logits = self.language.run([tokens for tokens, _ in beams], sites="head")["head"][:, -1]
            logs = logits[:, : self.language.vocabulary_size].float().log_softmax(-1)
            grown = [
                ([*tokens, index], told + float(row[index]))
                for (tokens, told), row in zip(beams, logs, strict=True)
                for index in sorted({*row.topk(self.proposals).indices.tolist(), *(self.ids[place] for place in near)})
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
            tried = [[*words[:i], hint, *words[i + skip :]] for i in places for hint in hints for skip in (0, 1)]
            tried += [[*words[:i], *words[i + 1 :]] for i in places if len(words) > 1]
            tried += [[*words[:i], *words[i : i + 2][::-1], *words[i + 2 :]] for i in places]
            scores = self.encode([" ".join(one) for one in tried]) @ target
            if float(scores.max()) < cosine + 1e-3:
                break
            words, cosine = tried[int(scores.argmax())], float(scores.max())
        return " ".join(words)


@TESTS.register("beam")
class BeamInversion(LeakTest):
    """Inversion of embeddings by queries: a beam with a language model's prior, then exchanges of words; nothing is trained."""

    releases: ClassVar[tuple[str, ...]] = ("embedding",)
    language: Annotated[str, Option("The language model that the attacker has.")] = ""
    judge: Annotated[str | None, Option("Another encoder, which says how alike the meanings are. Default: the same.")] = None
    passages: Annotated[int, Option("Passages that are inverted.", low=2)] = 4

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        if not self.language:
            raise BadInput("Say which language model the attacker has: --test beam:language=MODEL.")
        language = Lens.load(self.language)
        language.identify(run)
        if not (language.traits.predicts and language.traits.causal):
            raise BadInput(f"'{self.language}' is no causal language model: it expects no next token.")
        encode, tokenizer = encoder_of(lens), lens.require_tokenizer()
        rows = windows_of(texts, self.passages, asked["length"]).tolist()
        passages, guesses = [tokenizer.decode(row) for row in rows], list[str]()
        attack = QueryInversion(encode, language, length=asked["length"])
        for number, target in enumerate(encode(passages)):
            guesses.append(run.unit(f"beam-{number}", str, partial(attack, target)))
            run.progress("inversion by queries", number + 1, len(passages), "passages")
        judged = encode if self.judge is None else encoder_of(Lens.load(self.judge))
        return recovered(self.name, rows, [tokenizer(one, add_special_tokens=False)["input_ids"] for one in guesses],
                         judged(passages), judged(guesses), attack.queries)  # fmt: skip


def recovered(
    test: str, rows: list[list[int]], found: list[list[int]], truth: Tensor, guessed: Tensor, queries: int
) -> list[TrialRow]:
    """Tokens and meaning recovered, beside what another passage gives away: tokens count as often as they are in both."""
    count = sum(map(len, rows))
    base: dict[str, Any] = {"test": test, "site": "embedding", "defence": "none", "note": f"{queries:,} texts were encoded."}
    out = []
    for setting, others, vectors, knows in (
        ("by queries", found, guessed, "nothing"), ("another passage", rows[1:] + rows[:1], truth.roll(-1, 0), "bound"),
    ):  # fmt: skip
        share = sum((Counter(row) & Counter(other)).total() for row, other in zip(rows, others, strict=True)) / count
        cosines = np.clip((truth * vectors).sum(1).double().numpy(), -1, 1)
        low, high = student(cosines)
        read, alike = ("tokens read", "cosine of meanings") if knows == "nothing" else ("tokens shared", "cosine")
        out += [
            TrialRow(**base, setting=setting, quantity=read, value=share, count=count, knows=knows,
                     interval=share_interval(share, count)),
            TrialRow(**base, setting=setting, quantity=alike, value=float(cosines.mean()), count=len(rows), knows=knows,
                     interval=(max(-1.0, low), min(1.0, high))),
        ]  # fmt: skip
    return out
