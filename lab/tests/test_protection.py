"""What the field holds of protection: the experiments find what is there, and find protection where
there is some.
"""

from dataclasses import replace

import pytest
import torch
from headscan_lab.ledger.decision import decide
from headscan_lab.ledger.experiment import Power, Region
from headscan_lab.ledger.experiments import leaks as protection
from headscan_lab.ledger.experiments.leaks import Depth, FewBits, LittleNoise
from headscan_lab.ledger.proxies import lens_of, prompts
from headscan_lab.ledger.run import all_claims, wanted_claims


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(protection, "repeat_seeds", lambda seed: [1000 * seed, 1000 * seed + 1])
    monkeypatch.setattr(protection, "PROTECTION_PROMPTS", 6)
    monkeypatch.setattr(protection, "TOKENS", 2)
    monkeypatch.setattr(protection, "lens_of", lambda model, seed: lens_of("gpt2", 0, 32, 2))
    monkeypatch.setattr(protection, "prompts", lambda model, *args: prompts("gpt2", *args))
    monkeypatch.setattr(protection.Protection, "power", Power(seeds=2, tokens=24))


def verdict(number, experiment):
    """By the claim's own rule, but for what so few prompts can tell."""
    outcome = experiment.observe(0)
    claim = replace(all_claims()[number], experiment=experiment, counts=Region(0.5, None))
    return decide(claim, outcome).verdict, outcome


def flat(states):
    return torch.ones_like(states)


def test_depth_and_few_bits_and_a_little_noise_do_not_protect_a_random_model():
    for number, experiment, arms in (
        (301, Depth(), 3),
        (302, FewBits(), 4),
        (303, LittleNoise(), 2),
    ):
        decided, outcome = verdict(number, experiment)
        assert decided == "refuted"
        assert outcome.effect.value == 0
        assert [estimate.value for estimate in outcome.beside] == [1.0] * arms


def test_what_does_protect_is_seen_to_hold(monkeypatch):
    """The second block gives the same whatever came in; the format holds one number only; noise
    drowns the states.
    """
    with lens_of("gpt2", 0, 32, 2).patch({"block.1": flat}):
        monkeypatch.setattr(protection.Depth, "arms", _first_and_last)
        decided, outcome = verdict(301, Depth())
    assert decided == "supported"
    assert outcome.effect.value > 0.8
    monkeypatch.setattr(protection, "read_format", lambda name: _Blank())
    assert verdict(302, FewBits())[0] == "supported"
    assert verdict(303, LittleNoise(share=1000.0))[0] == "supported"


_arms = Depth.arms


def _first_and_last(self, lens, ids, seed):
    """Of two blocks the middle one is the first, which is not damaged."""
    return (arm for arm in _arms(self, lens, ids, seed) if arm.name != "middle block")


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
