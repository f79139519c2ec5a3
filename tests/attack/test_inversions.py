"""Forty-four of the adversarial inversions in every run of the suite; five hundred in `make
attack`.
"""

from dataclasses import replace
from itertools import islice

from tests.attack import families, inversions
from tests.attack.brute import AMBIGUOUS, UNIQUE, false_words
from tests.attack.families import FAMILIES, attacks, distribution, duplicate, soft
from tests.attack.inversions import assessed, false_certificates, fresh


def shortened(method):
    """Return a method whose descents have a fifth of the steps; certificates know nothing of it."""
    changes = {}
    if hasattr(method, "steps"):
        changes["steps"] = method.steps // 5
    if hasattr(method, "hidden"):
        changes["hidden"] = replace(method.hidden, steps=method.hidden.steps // 5)
    return replace(method, **changes)


def test_no_adversarial_inversion_draws_a_false_word(monkeypatch):
    """Brute force tries every token, so that small vocabularies are taken."""
    monkeypatch.setattr(families, "fresh", lambda kind, seed, *_: fresh(kind, seed, (50,)))
    ways = {name: shortened(method) for name, method in inversions.WAYS.items()}
    monkeypatch.setattr(inversions, "WAYS", ways)
    every_second = islice(attacks(4 * len(FAMILIES)), 0, None, 2)
    drawn = [(attack, list(false_certificates(attack))) for attack in every_second]
    assert sum(len(judgements) for _, judgements in drawn) == 44
    assert [
        (attack.family, attack.site, wrong)
        for attack, judgements in drawn
        for _, wrong in judgements
        if wrong
    ] == []
    verdicts = {verdict for _, judgements in drawn for verdict, _ in judgements}
    assert {UNIQUE, AMBIGUOUS, "not recovered"} <= verdicts


def test_false_words_would_be_found():
    """A verdict that is one word too strong, an equivalent kept back, a guess called recovered."""
    twins = duplicate(1, "gpt2", "block.0", "exact, table")
    entry = assessed(twins)[0]
    assert entry.verdict == AMBIGUOUS
    assert false_words(twins, 0, entry) == []
    length = len(entry.recovered)
    assert false_words(twins, 0, replace(entry, verdicts=[UNIQUE] * length))
    kept_back = replace(entry.certificate, equivalent=[[]] * length, types=["exhaustive"] * length)
    assert false_words(twins, 0, replace(entry, certificate=kept_back))
    guess = soft(1, "gpt2", "block.0", "exact, table")
    entry = assessed(guess)[0]
    assert false_words(guess, 0, entry) == []
    assert false_words(
        guess, 0, replace(entry, verdict=UNIQUE, verdicts=[UNIQUE] * len(entry.recovered))
    )


def test_equal_rows_give_one_distribution_and_are_not_called_unique():
    """Prompts of one token: they were compared by logits with log-probabilities, and every rival
    lay far off.
    """
    twins = distribution(0, "gpt2", "", "joint")
    del twins.targets[1:], twins.truth[1:]
    entry = assessed(twins)[0]
    assert twins.truth[0] is not None
    assert [(entry.verdict, len(entry.certificate.equivalent[0]))] == [(AMBIGUOUS, 1)]
    assert twins.truth[0][0] in (*entry.recovered, *entry.certificate.equivalent[0])
