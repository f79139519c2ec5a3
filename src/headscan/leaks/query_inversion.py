"""Inversion of embeddings without the weights.

The attacker has an encoder that can be queried and a language model as prior, and trains nothing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.plan import windows_of
from headscan.leaks.registry import TESTS, LeakTest
from headscan.leaks.result import TrialRow
from headscan.leaks.rows import share_interval
from headscan.leaks.settings import PrivacySettings
from headscan.model.lens import Lens
from headscan.run import BadInput, Option, Run
from headscan.statistics.uncertainty import student

Encode = Callable[[Sequence[str]], Float[Tensor, "n w"]]
"""An encoder that can be queried: from texts to vectors of unit length."""
FLUENCY = 0.01  # worth of a nat a token, in cosine
PATIENCE = 5  # steps without a gain after which a beam ends
HINTS = 48  # words that are tried everywhere
COMMON = 6000  # words whose own embeddings are asked for
IDS_A_WORD = 12  # token ids that are looked through for a common word
BATCH = 256
GAIN = 1e-3  # cosine that an exchange of words must gain


def encoder_of(lens: Lens) -> Encode:
    """Return a model as an encoder of texts.

    An embedding is the mean of the last block's states, special tokens included, of unit length.
    """
    cut = EmbeddingSlice(lens)
    tokenize = lens.require_tokenizer()

    @torch.no_grad()
    def encode(texts: Sequence[str]) -> Tensor:
        rows = [tokenize(text)["input_ids"][: lens.context_length] or [0] for text in texts]
        vectors = torch.zeros(len(rows), cut.width)
        lengths = torch.tensor([len(row) for row in rows])
        for length in lengths.unique():
            for part in (lengths == length).nonzero()[:, 0].split(BATCH):
                ids = torch.tensor([rows[index] for index in part])
                vectors[part] = cut.run(ids).float().cpu()[:, 0]
        return vectors

    return encode


@dataclass(frozen=True)
class _Hypothesis:
    """The beginning of a text in a beam.

    Attributes:
        tokens: the tokens, after the one that begins a text.
        nats: the log-probability of the tokens but the first, by the language model.
    """

    tokens: list[int]
    nats: float

    @property
    def fluency(self) -> float:
        """Return nats a token."""
        return self.nats / (len(self.tokens) - 1)


class QueryInversion:
    """Inversion by queries with one language model and one encoder: from a target [w] to a text.

    A beam from left to right tries what the language model expects next, and common words whose own
    embedding is near the target; texts are kept by cosine and fluency. Then words of the best text
    are exchanged, inserted, deleted while the cosine rises.

    Attributes:
        words: common words, which are encoded once; ids: their tokens.
        queries: texts encoded so far.
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
        """Set the attacker's means, and encode the common words.

        Args:
            encode: the encoder.
            language: the language model.
            width: hypotheses of the beam.
            proposals: tokens that the language model proposes for each.
            length: tokens of a text, at most.
        """
        self.encoder = encode
        self.language = language
        self.width = width
        self.proposals = proposals
        self.length = length
        self.decode = language.require_tokenizer().decode
        self.queries = 0
        self.ids = self._common_ids()
        self.words = [self.decode([index]).strip() for index in self.ids]
        self.vectors = self.encode(self.words or [""])

    def _common_ids(self) -> list[int]:
        """Return tokens that are whole words; merges are learned in the order of their use."""
        ids = []
        for index in range(min(self.language.vocabulary_size, IDS_A_WORD * COMMON)):
            word = self.decode([index])
            if word.startswith(" ") and word[1:].isalpha():
                ids.append(index)
        return ids[:COMMON]

    def encode(self, texts: Sequence[str]) -> Float[Tensor, "n w"]:
        """Return the vectors of texts, and count the queries."""
        self.queries += len(texts)
        return self.encoder(texts)

    @torch.no_grad()
    def __call__(self, target: Float[Tensor, " w"]) -> str:
        """Return the text that was found for a target."""
        count = min(HINTS, len(self.ids))
        hints = (self.vectors @ target).topk(count).indices.tolist()
        text = self._searched(target, [self.ids[index] for index in hints])
        return self._exchanged(text.split(), target, [self.words[index] for index in hints])

    def _searched(self, target: Float[Tensor, " w"], hint_ids: list[int]) -> str:
        """Return the best text of a beam from left to right."""
        start = self.language.require_tokenizer()("\n", add_special_tokens=False)["input_ids"][:1]
        beam = [_Hypothesis(start, 0.0)]
        best_score = -2.0
        best_text = ""
        waited = 0
        while waited < PATIENCE and len(beam[0].tokens) <= self.length:
            grown = self._grown(beam, hint_ids)
            texts = [self.decode(hypothesis.tokens[1:]).strip() for hypothesis in grown]
            fluency = torch.tensor([hypothesis.fluency for hypothesis in grown])
            scores = self.encode(texts) @ target + FLUENCY * fluency
            order = scores.topk(min(self.width, len(grown))).indices
            beam = [grown[index] for index in order]

            score, text = max(zip(scores.tolist(), texts, strict=True))
            waited = 0 if score > best_score else waited + 1
            best_score, best_text = max((best_score, best_text), (score, text))
        return best_text

    def _grown(self, beam: list[_Hypothesis], hint_ids: list[int]) -> list[_Hypothesis]:
        """Return each hypothesis with each of the tokens that are tried after it."""
        tokens = [hypothesis.tokens for hypothesis in beam]
        logits = self.language.run(tokens, sites="head")["head"][:, -1]
        nats = logits[:, : self.language.vocabulary_size].float().log_softmax(-1)
        grown = []
        for hypothesis, row in zip(beam, nats, strict=True):
            proposed = row.topk(self.proposals).indices.tolist()
            for index in sorted({*proposed, *hint_ids}):
                tokens_now = [*hypothesis.tokens, index]
                grown.append(_Hypothesis(tokens_now, hypothesis.nats + float(row[index])))
        return grown

    def _exchanged(self, words: list[str], target: Float[Tensor, " w"], hints: list[str]) -> str:
        """Change single words while the cosine rises; return the text."""
        cosine = float(self.encode([" ".join(words)])[0] @ target)
        for _ in range(3 * self.length):
            variants = _variants(words, hints)
            scores = self.encode([" ".join(variant) for variant in variants]) @ target
            if float(scores.max()) < cosine + GAIN:
                break
            words = variants[int(scores.argmax())]
            cosine = float(scores.max())
        return " ".join(words)


def _variants(words: list[str], hints: list[str]) -> list[list[str]]:
    """Return words with a hint inserted or in place of one, with one deleted, with two swapped."""
    variants = []
    positions = range(len(words) + 1)
    for i in positions:
        for hint in hints:
            variants.append([*words[:i], hint, *words[i:]])
            variants.append([*words[:i], hint, *words[i + 1 :]])
    if len(words) > 1:
        variants += [[*words[:i], *words[i + 1 :]] for i in positions]
    for i in positions:
        swapped = words[i : i + 2][::-1]
        variants.append([*words[:i], *swapped, *words[i + 2 :]])
    return variants


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

    def measure(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> list[TrialRow]:
        language = self._language_model(run)
        encode = encoder_of(lens)
        tokenizer = lens.require_tokenizer()
        rows = windows_of(texts, self.passages, settings.length).tolist()
        passages = [tokenizer.decode(row) for row in rows]
        guesses = []
        attack = QueryInversion(encode, language, length=settings.length)
        for number, target in enumerate(encode(passages)):
            guesses.append(run.unit(f"beam-{number}", str, partial(attack, target)))
            run.progress("inversion by queries", number + 1, len(passages), "passages")
        judged = encode if self.judge is None else encoder_of(Lens.load(self.judge))
        return recovered(
            self.name,
            rows,
            [tokenizer(guess, add_special_tokens=False)["input_ids"] for guess in guesses],
            judged(passages),
            judged(guesses),
            attack.queries,
        )

    def _language_model(self, run: Run) -> Lens:
        if not self.language:
            raise BadInput("Say which language model the attacker has: --test beam:language=MODEL.")
        language = Lens.load(self.language)
        language.identify(run, "the attacker's language model")
        if not (language.traits.predicts and language.traits.causal):
            raise BadInput(
                f"'{self.language}' is no causal language model: it expects no next token."
            )
        return language


def recovered(
    test: str,
    passages: list[list[int]],
    guesses: list[list[int]],
    passage_vectors: Float[Tensor, "N w"],
    guess_vectors: Float[Tensor, "N w"],
    queries: int,
) -> list[TrialRow]:
    """Return tokens and meaning recovered, beside what another passage gives away.

    Args:
        test: the name of the test.
        passages: token ids of the texts.
        guesses: token ids of the texts found.
        passage_vectors: embeddings of the texts.
        guess_vectors: embeddings of the texts found.
        queries: texts that were encoded.
    """
    note = f"{queries:,} texts were encoded."
    attack = TrialRow.blank(test, "embedding", setting="by queries", knows="nothing", note=note)
    base = TrialRow.blank(test, "embedding", setting="another passage", knows="bound", note=note)
    neighbours = passages[1:] + passages[:1]
    return [
        _tokens_row(replace(attack, quantity="tokens read"), passages, guesses),
        _cosine_row(replace(attack, quantity="cosine of meanings"), passage_vectors, guess_vectors),
        _tokens_row(replace(base, quantity="tokens shared"), passages, neighbours),
        _cosine_row(replace(base, quantity="cosine"), passage_vectors, passage_vectors.roll(-1, 0)),
    ]


def _tokens_row(row: TrialRow, passages: list[list[int]], guesses: list[list[int]]) -> TrialRow:
    """Return a row with the share of the passages' tokens that are in the guesses.

    A token counts as often as it is in both.
    """
    count = sum(map(len, passages))
    pairs = zip(passages, guesses, strict=True)
    shared = sum((Counter(passage) & Counter(guess)).total() for passage, guess in pairs)
    share = shared / count
    return replace(row, value=share, interval=share_interval(share, count), count=count)


def _cosine_row(row: TrialRow, passages: Tensor, guesses: Tensor) -> TrialRow:
    """Return a row with the mean cosine of two lists of vectors [N, w]."""
    products = (passages * guesses).sum(1).double().numpy()
    cosines = np.clip(products, -1, 1)
    low, high = student(cosines)
    interval = (max(-1.0, low), min(1.0, high))
    return replace(row, value=float(cosines.mean()), interval=interval, count=len(passages))
