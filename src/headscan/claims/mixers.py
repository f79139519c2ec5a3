"""Claims 105-122: what masked mixers keep of tokens whose own outputs are hidden, trained and not, wide and narrow, deep.

The source's models (d up to 2048, hours of training on TinyStories) are scaled down: widths by 2 to 8, texts of 16 tokens
of a made-up language, hundreds of steps of training. Where it says *not recovered*, the exact search tells whether the
token is not there or the optimizer did not find it; the latter is an artefact.
"""

from __future__ import annotations

from collections.abc import Callable

from headscan.claims.claim import Outcome, Verdict, claim
from headscan.claims.mixer_recall import Recall, body, recall
from headscan.run import Json

__all__ = ["SOURCE"]

SOURCE = "Badger, Language Modeling and Discrete Encodings; Masked Mixers, arXiv:2409.01482"
PERFECT = 0.95  # of tokens
TRAINED = 300  # steps


def _is_recovered(found: Recall, what: str) -> Verdict:
    """The source says: recovered."""
    share = found.own if found.hidden is None else found.hidden
    if share >= PERFECT:
        return Verdict("reproduced", f"{what}: {share:.0%} of the tokens are recovered by gradient.", found.numbers())
    if found.exact == 1 and found.count == 1:
        why = f"{what}: by gradient {share:.0%}, but an exact search finds each hidden token: it is there."
        return Verdict("reproduced", why, found.numbers())
    if found.exact == 1:
        why = f"{what}: by gradient {share:.0%}; each hidden token alone, the rest known, is found by exact search."
        return Verdict("not reproduced", why, found.numbers())
    return Verdict("not reproduced", f"{what}: {share:.0%} of the tokens are recovered by gradient.", found.numbers())


def _is_lost(found: Recall, what: str) -> Verdict:
    """The source says: not recovered."""
    share = found.own if found.hidden is None else found.hidden
    if share >= PERFECT:
        return Verdict(
            "not reproduced", f"{what}: {share:.0%} of the tokens are recovered by gradient.", found.numbers()
        )
    if found.exact == 1:
        why = f"{what}: by gradient {share:.0%}, but an exact search finds each hidden token: it was the optimizer."
        return Verdict("artefact", why, found.numbers())
    return Verdict("reproduced", f"{what}: neither gradient ({share:.0%}) nor search recovers it.", found.numbers())


def _enter(
    number: int,
    statement: str,
    judge: Callable[[Recall, str], Verdict],
    what: str,
    kind: str,
    width: int,
    blocks: int,
    *,
    trained: int = 0,
    first: int = 1,
) -> None:
    """A claim about one model: `body` makes it, `recall` asks what is left of its `first` hidden tokens."""

    def experiment(seed: int) -> Verdict:
        return judge(recall(body(kind, width, blocks, trained=trained, seed=seed), first=first, seed=seed), what)

    claim(number, statement, SOURCE)(experiment)


_enter(
    105, "An untrained mixer of one block and width 32 or more represents its whole input.",
    _is_recovered, "d = 32, one block, all outputs", "expanded", 32, 1, first=0,
)  # fmt: skip
_enter(
    106, "An untrained expanded mixer (d = 512) does not recover the token whose own output is hidden.",
    _is_lost, "expanded, d = 256, untrained", "expanded", 256, 1,
)  # fmt: skip
_enter(
    107, "A trained expanded mixer (d = 64, one block) does not recover a hidden first token.",
    _is_lost, "expanded, d = 64, trained", "expanded", 64, 1, trained=TRAINED,
)  # fmt: skip
_enter(
    108, "Nor does the same mixer (d = 64) untrained.",
    _is_lost, "expanded, d = 64, untrained", "expanded", 64, 1,
)  # fmt: skip
_enter(
    109, "Nor does a trained expanded mixer of width 256.",
    _is_lost, "expanded, d = 256, trained", "expanded", 256, 1, trained=TRAINED,
)  # fmt: skip
_enter(
    110, "An untrained flat mixer (d = 512, one block) recovers a hidden first token.",
    _is_recovered, "flat, d = 256, untrained", "flat", 256, 1,
)  # fmt: skip


@claim(111, "A trained flat mixer (d = 512) recovers it at blocks 2 and 4.", SOURCE)
def _(seed: int) -> Verdict:
    model = body("flat", 256, 4, trained=TRAINED, seed=seed)
    found = [recall(model, first=1, blocks=blocks, seed=seed) for blocks in (2, 4)]
    return _is_recovered(
        min(found, key=lambda each: each.hidden or 0), "flat, d = 256, trained, the worse of two depths"
    )


_enter(
    112, "A trained flat mixer (d = 512) recovers three hidden first tokens at block 2.",
    _is_recovered, "flat, d = 256, trained, three hidden", "flat", 256, 2, trained=TRAINED, first=3,
)  # fmt: skip


@claim(113, "At half that width a flat mixer does not: recall depends on width.", SOURCE)
def _(seed: int) -> Verdict:
    wide, narrow = (recall(body("flat", width, 1, seed=seed), first=1, seed=seed) for width in (256, 64))
    numbers: dict[str, Json] = {"d = 256": wide.numbers(), "d = 64": narrow.numbers()}
    if (narrow.hidden or 0) < (wide.hidden or 0):
        outcome: Outcome = "artefact" if narrow.exact == 1 else "reproduced"
        why = f"Hidden tokens found by gradient: {wide.hidden:.0%} at d = 256, {narrow.hidden:.0%} at d = 64"
        more = "; an exact search finds them at both, so width helps the optimizer." if narrow.exact == 1 else "."
        return Verdict(outcome, why + more, numbers)
    return Verdict("not reproduced", "The narrower mixer is no worse.", numbers)


_enter(
    114, "Two parallel mixings (d = 64, block 8, untrained) recover ten hidden tokens.",
    _is_recovered, "two parallel, d = 64, 8 blocks", "parallel", 64, 8, first=10,
)  # fmt: skip
_enter(
    115, "An untrained flat mixer of eight blocks (d = 1024) does not quite recover its input.",
    _is_lost, "flat, d = 128, 8 blocks, untrained", "flat", 128, 8,
)  # fmt: skip
_enter(
    116, "At twice the width (d = 2048) it does.",
    _is_recovered, "flat, d = 256, 8 blocks, untrained", "flat", 256, 8,
)  # fmt: skip
_enter(
    117, "Depth helps: with 24 blocks (d = 1024, untrained) three hidden tokens are recovered.",
    _is_recovered, "flat, d = 128, 24 blocks", "flat", 128, 24, first=3,
)  # fmt: skip


@claim(118, "A trained flat mixer (d = 1024) recovers a hidden token at block 1 and not at block 8.", SOURCE)
def _(seed: int) -> Verdict:
    model = body("flat", 128, 8, trained=TRAINED, seed=seed)
    early, late = (recall(model, first=1, blocks=blocks, seed=seed) for blocks in (1, 8))
    numbers: dict[str, Json] = {"block 1": early.numbers(), "block 8": late.numbers()}
    why = f"Hidden tokens found by gradient: {early.hidden:.0%} at block 1, {late.hidden:.0%} at block 8"
    if (late.hidden or 0) < (early.hidden or 0):
        return Verdict("artefact" if late.exact == 1 else "reproduced", f"{why}; by search {late.exact:.0%}.", numbers)
    return Verdict("not reproduced", f"{why}: the later block is no worse.", numbers)


def _against_llama(width: int, blocks: int, seed: int) -> Verdict:
    mixer, llama = (
        recall(body(kind, width, blocks, trained=TRAINED, seed=seed), first=1, seed=seed) for kind in ("flat", "llama")
    )
    numbers: dict[str, Json] = {"mixer": mixer.numbers(), "transformer": llama.numbers()}
    why = (
        f"d = {width}, {blocks} blocks, trained; own and hidden tokens by gradient: mixer {mixer.own:.0%} and "
        f"{mixer.hidden:.0%}, transformer {llama.own:.0%} and {llama.hidden:.0%}; hidden by search: "
        f"{mixer.exact:.0%} and {llama.exact:.0%}."
    )
    worse = llama.own + (llama.hidden or 0) < mixer.own + (mixer.hidden or 0)
    if not worse:
        return Verdict("not reproduced", why, numbers)
    return Verdict("artefact" if llama.exact == 1 else "reproduced", why, numbers)


@claim(119, "A trained transformer (d = 256, 8 blocks) recovers less of its input than a mixer of its size.", SOURCE)
def _(seed: int) -> Verdict:
    return _against_llama(64, 4, seed)


@claim(120, "So does a wider one (d = 512).", SOURCE)
def _(seed: int) -> Verdict:
    return _against_llama(128, 4, seed)


_enter(
    121, "A deep and narrow trained mixer (d = 64, 64 blocks) does not recover its input at the last block.",
    _is_lost, "flat, d = 32, 32 blocks, trained", "flat", 32, 32, trained=TRAINED,
)  # fmt: skip
_enter(
    122, "Nor does a trained mixer of d = 256 and 8 blocks.",
    _is_lost, "flat, d = 64, 8 blocks, trained", "flat", 64, 8, trained=TRAINED,
)  # fmt: skip
