"""Do synonyms lie close together in the embedding table? The cosine of pairs, beside the same words paired at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from headscan.errors import BadInput

__all__ = ["SYNONYMS", "synonyms"]

# Common English words, each in one pair only; nouns, verbs and adjectives, so that chance pairs mix them too.
_PAIRS = """
big/large small/little happy/glad sad/unhappy quick/fast smart/clever angry/mad scared/afraid pretty/beautiful
begin/start end/finish close/shut speak/talk look/see hear/listen jump/leap run/race shout/yell cry/weep laugh/giggle
gift/present stone/rock road/street house/home boat/ship forest/woods sea/ocean kid/child mom/mother dad/father
rich/wealthy hard/difficult easy/simple strange/odd silent/quiet noisy/loud cold/chilly hot/warm tired/sleepy
brave/bold kind/nice mean/cruel clean/tidy dirty/messy correct/right wrong/false whole/entire broken/damaged
choose/pick answer/reply ask/question help/assist fix/repair build/make get/receive give/offer hide/conceal
hurry/rush need/require like/enjoy love/adore hate/dislike think/believe know/understand want/desire try/attempt
put/place throw/toss pull/drag push/shove fall/drop grow/rise hit/strike break/crack cut/slice join/connect
doctor/physician teacher/instructor friend/pal baby/infant man/guy woman/lady king/ruler city/town car/automobile
job/work story/tale picture/image song/tune meal/dinner trip/journey game/play prize/award error/mistake
part/piece top/peak bottom/base edge/border shore/coast rabbit/bunny dog/puppy cat/kitten bug/insect
"""
SYNONYMS: tuple[tuple[str, str], ...] = tuple(
    (one, other) for one, _, other in (pair.partition("/") for pair in _PAIRS.split())
)


def synonyms(
    model: Any, tokenizer: Any, *, pairs: tuple[tuple[str, str], ...] = SYNONYMS, draws: int = 1000, seed: int = 0
) -> dict[str, float | int]:
    """Mean cosine of synonyms' input embeddings, beside the same words with their partners shuffled.

    A word's vector is the mean of the rows of its tokens, written with a space before it, as inside a sentence. Words
    that share their tokens with their partner are left out. Returns synonyms and random (mean cosines, -1 to 1), gain
    (their difference), spread (standard deviation of the random mean over `draws` shuffles), p_value (share of shuffles
    that reach the synonyms' mean) and pairs. A cone lifts both means, so the gain is what to compare between models.

    Source: Godey et al. 2024, appendix A, on pairs of WordNet; the list here is the project's own.
    """
    if len(pairs) < 2:
        raise BadInput("Shuffled partners need at least two pairs.")
    table = model.get_input_embeddings().weight.detach().float().cpu().numpy()

    def unit(word: str) -> tuple[list[int], np.ndarray]:
        ids = tokenizer(" " + word, add_special_tokens=False)["input_ids"]
        vector = table[ids].mean(0)
        return ids, vector / max(np.linalg.norm(vector), 1e-12)

    found = [(unit(one), unit(other)) for one, other in pairs]
    kept = [(one[1], other[1]) for one, other in found if one[0] != other[0]]
    left, right = (np.stack(side) for side in zip(*kept, strict=True))
    cosines = left @ right.T
    draw = np.random.default_rng(seed)
    own = float(np.diag(cosines).mean())
    numbers = np.arange(len(kept))
    shuffled = np.array([cosines[numbers, draw.permutation(len(kept))].mean() for _ in range(draws)])
    return {
        "synonyms": own,
        "random": float(shuffled.mean()),
        "gain": own - float(shuffled.mean()),
        "spread": float(shuffled.std()),
        "p_value": float((1 + (shuffled >= own).sum()) / (1 + draws)),
        "pairs": len(kept),
    }
