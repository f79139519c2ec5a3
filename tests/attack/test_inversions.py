"""Sixty of the adversarial inversions in every run of the suite; five hundred in `make attack`."""

from __future__ import annotations

from dataclasses import replace

from tests.attack.families import FAMILIES, attacks, duplicate, soft
from tests.attack.inversions import AMBIGUOUS, UNIQUE, assessed, false_words, words


def test_no_adversarial_inversion_draws_a_false_word():
    drawn = [(attack, list(words(attack))) for attack in attacks(4 * len(FAMILIES))]
    assert sum(len(found) for _, found in drawn) == 60
    assert [(attack.family, attack.site, wrong) for attack, found in drawn for _, wrong in found if wrong] == []
    verdicts = {verdict for _, found in drawn for verdict, _ in found}
    assert {UNIQUE, AMBIGUOUS, "not recovered"} <= verdicts


def test_false_words_would_be_found():
    """A verdict that is one word too strong, an equivalent kept back, a guess called recovered."""
    twins = duplicate(1, "gpt2", "block.0", "table")
    entry = assessed(twins)[0]
    assert entry.verdict == AMBIGUOUS
    assert false_words(twins, 0, entry) == []
    length = len(entry.recovered)
    assert false_words(twins, 0, replace(entry, verdicts=[UNIQUE] * length))
    kept_back = replace(entry.certificate, equivalent=[[]] * length, types=["exhaustive"] * length)
    assert false_words(twins, 0, replace(entry, certificate=kept_back))
    guess = soft(1, "gpt2", "block.0", "table")
    entry = assessed(guess)[0]
    assert false_words(guess, 0, entry) == []
    assert false_words(guess, 0, replace(entry, verdict=UNIQUE, verdicts=[UNIQUE] * len(entry.recovered)))
