"""Do synonyms lie close together in the embedding table? The cosine of pairs, beside the same words paired at random."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.geometry.interval import of_items
from headscan.model.tables import embedding_table
from headscan.run import BadInput
from headscan.text import PairSet
from headscan.text import synonyms as shipped
from headscan.training.task import TASKS, Evaluated, Scores, Task

__all__ = ["Synonyms", "synonyms"]


def synonyms(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, pairs: PairSet | None = None, draws: int = 1000,
    seed: int = 0,
) -> Scores:  # fmt: skip
    """Mean cosine of synonyms' input embeddings, beside the same words with their partners shuffled.

    A word's vector is the mean of the rows of its tokens, written with a space before it, as inside a sentence. Words
    that share their tokens with their partner are left out. Without `pairs` it is the list that comes with headscan.

    Returns synonyms and random (mean cosines, -1 to 1), gain (their difference), spread (standard deviation of the random
    mean over `draws` shuffles), p_value (share of shuffles that reach the synonyms' mean) and pairs. A cone lifts both
    means, so the gain is what to compare between models.

    Source: Godey et al. 2024, appendix A, on pairs of WordNet; the list here is the project's own.
    """
    pairs = shipped() if pairs is None else pairs
    if len(pairs) < 2:
        raise BadInput("Shuffled partners need at least two pairs.")
    table = embedding_table(model).detach().float().cpu().numpy()

    def unit(word: str) -> tuple[list[int], npt.NDArray[np.float32]]:
        ids = tokenizer(" " + word, add_special_tokens=False)["input_ids"]
        vector = table[ids].mean(0)
        return ids, vector / max(np.linalg.norm(vector), 1e-12)

    found = [(unit(one), unit(other)) for one, other in zip(pairs.one, pairs.other, strict=True)]
    kept = [(one[1], other[1]) for one, other in found if one[0] != other[0]]
    left, right = (np.stack(side) for side in zip(*kept, strict=True))
    cosines = left @ right.T
    draw = np.random.default_rng(seed)
    own = float(np.diag(cosines).mean())
    numbers = np.arange(len(kept))
    shuffled = np.array([cosines[numbers, draw.permutation(len(kept))].mean() for _ in range(draws)])

    def interval(own: float, random: float) -> list[float] | None:
        """Of so many times the mean over pairs, and over all pairings, over other pairs of words."""

        def value(taken: npt.NDArray[np.int64]) -> float:
            return own * float(np.diag(cosines)[taken].mean()) + random * float(cosines[np.ix_(taken, taken)].mean())

        return of_items(value, len(kept))

    return {
        "synonyms": own,
        "synonyms_interval": interval(1, 0),
        "random": float(shuffled.mean()),
        "random_interval": interval(0, 1),
        "gain": own - float(shuffled.mean()),
        "gain_interval": interval(1, -1),
        "spread": float(shuffled.std()),
        "p_value": float((1 + (shuffled >= own).sum()) / (1 + draws)),
        "pairs": len(kept),
    }


@TASKS.register("synonyms")
class Synonyms(Task):
    """Are synonyms' input embeddings closer than the same words paired at random? Needs no set."""

    def scores(self, given: Evaluated) -> Scores:
        """See `synonyms`."""
        return synonyms(given.model, given.tokenizer)
