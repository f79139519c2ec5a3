"""What the field holds of protection: the experiments find what is there, and find protection where
there is some.
"""

from dataclasses import replace

import pytest
import torch
from headscan_lab.ledger.claim import decide
from headscan_lab.ledger.experiment import Power, Region
from headscan_lab.ledger.experiments import leaks as protection
from headscan_lab.ledger.experiments.leaks import Depth, FewBits, LittleNoise
from headscan_lab.ledger.run import all_claims, wanted_claims
from headscan_lab.ledger.stand_ins import lens_of, prompts


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(protection, "own_seeds", lambda seed: [1000 * seed, 1000 * seed + 1])
    monkeypatch.setattr(protection, "PROTECTION_PROMPTS", 6)
    monkeypatch.setattr(protection, "TOKENS", 2)
    monkeypatch.setattr(protection, "lens_of", lambda model, seed: lens_of("gpt2", 0, 32, 2))
    monkeypatch.setattr(protection, "prompts", lambda model, *asked: prompts("gpt2", *asked))
    monkeypatch.setattr(protection.Protection, "power", Power(seeds=2, tokens=24))


def verdict(number, experiment):
    """By the claim's own rule, but for what so few prompts can tell."""
    found = experiment.observe(0)
    claim = replace(all_claims()[number], experiment=experiment, counts=Region(0.5, None))
    return decide(claim, found).verdict, found


def flat(states):
    return torch.ones_like(states)


def test_depth_and_few_bits_and_a_little_noise_do_not_protect_a_random_model():
    for number, experiment, arms in (
        (301, Depth(), 3),
        (302, FewBits(), 4),
        (303, LittleNoise(), 2),
    ):
        said, found = verdict(number, experiment)
        assert said == "refuted"
        assert found.effect.value == 0
        assert [one.value for one in found.beside] == [1.0] * arms


def test_what_does_protect_is_seen_to_hold(monkeypatch):
    """The second block gives the same whatever came in; the format holds one number only; noise
    drowns the states.
    """
    with lens_of("gpt2", 0, 32, 2).patch({"block.1": flat}):
        monkeypatch.setattr(protection.Depth, "arms", _first_and_last)
        said, found = verdict(301, Depth())
    assert said == "supported"
    assert found.effect.value > 0.8
    monkeypatch.setattr(protection, "read_format", lambda name: _Blank())
    assert verdict(302, FewBits())[0] == "supported"
    assert verdict(303, LittleNoise(share=1000.0))[0] == "supported"


_arms = Depth.arms


def _first_and_last(self, lens, ids, seed):
    """Of two blocks the middle one is the first, which is not damaged."""
    return (arm for arm in _arms(self, lens, ids, seed) if arm[0] != "middle block")


class _Blank:
    def __call__(self, values):
        return flat(values)

    def each(self, widths):
        return flat


def test_the_ledger_has_them_with_rules_that_can_turn():
    assert wanted_claims("field")[:3] == [301, 302, 303]
    claims = [all_claims()[number] for number in (301, 302, 303)]
    assert [type(claim.experiment) for claim in claims] == [Depth, FewBits, LittleNoise]
    assert all(
        claim.counts.low > 0 and claim.counts.high is None and not claim.large for claim in claims
    )
