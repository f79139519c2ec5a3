"""A few resumes after one fact was changed; a thousand in `make attack`."""

import pytest

from headscan.run import Run
from tests.attack.facts import attack, attacked_verbs
from tests.attack.kills import CASES


def test_every_verb_takes_part():
    """A new verb needs a command line there."""
    assert set(attacked_verbs()) == set(CASES)


@pytest.mark.parametrize("verb", ["weights", "attribute"])
def test_no_fact_changes_unseen(verb):
    assert attack(3, seed=3, names=[verb]) == []


def test_every_setting_is_compared():
    """The settings of a run are one closed set: a name or a value of one side alone is refused."""
    settings = Run("scan", options=()).identity
    for name in settings:
        without = {key: value for key, value in settings.items() if key != name}
        for stored, present in (
            (settings, without),
            (without, settings),
            (settings | {name: "another"}, settings),
        ):
            with pytest.raises(ValueError, match="cannot be resumed"):
                Run("scan")._compare_sets(stored, present)
