"""A few of the drawn command lines in every run of the suite; thousands in `make attack`."""

import random

import pytest

from headscan.cli import BARE
from tests.attack.fuzz import VERBS, attack, parameters, run


def test_no_drawn_command_line_ends_in_a_traceback():
    assert attack(12, seed=1) == []


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in BARE])
def test_an_option_that_the_chosen_item_does_not_use_is_refused_by_name(verb):
    """Drawn: an item of one of the verb's registries, and a parameter that belongs to others only."""
    command, fields, registries = parameters(verb)
    draw = random.Random(verb)
    for name, registry in registries.items():
        known = registry.parameters()
        users: dict[str, list[str]] = {}
        for user, own in known.items():
            for field in own:
                users.setdefault(field.name, []).append(user)
        pairs = [(item, one) for item in registry for one in users if item not in users[one]]
        for item, one in draw.sample(pairs, min(6, len(pairs))):
            words = [
                verb,
                *(["gpt-vanilla-early"] if command.subject else []),
                fields[name].flag,
                f"{item}:{one}=2",
            ]
            for other in fields.values():
                if other.required:
                    words += [other.flag, "stories"]
            status, said, _ = run(words)
            assert status == 2, f"{' '.join(words)}: {said}"
            assert f"{one} is not a parameter of" in said
            assert users[one][0] in said.replace("\n", " ")
