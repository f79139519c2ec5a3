"""A few of the drawn command lines in every run of the suite; thousands in `make attack`."""

import random

import pytest

from headscan.cli import BARE
from tests.attack.fuzz import VERBS, attack, parameters, run


def test_no_drawn_command_line_ends_in_a_traceback():
    assert attack(12, seed=1) == []


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in BARE])
def test_an_option_that_the_chosen_item_does_not_use_is_refused_by_name(verb):
    """Drawn: an item of one of the verb's registries, and a parameter that belongs to
    others only.
    """
    command, fields, registries = parameters(verb)
    draw = random.Random(verb)
    for name, registry in registries.items():
        known = registry.parameters()
        users: dict[str, list[str]] = {}
        for user, user_fields in known.items():
            for field in user_fields:
                users.setdefault(field.name, []).append(user)
        pairs = [(item, user) for item in registry for user in users if item not in users[user]]
        for item, parameter in draw.sample(pairs, min(6, len(pairs))):
            arguments = [
                verb,
                *(["gpt-vanilla-early"] if command.subject else []),
                fields[name].flag,
                f"{item}:{parameter}=2",
            ]
            for option in fields.values():
                if option.required:
                    arguments += [option.flag, "stories"]
            status, output, _ = run(arguments)
            assert status == 2, f"{' '.join(arguments)}: {output}"
            assert f"{parameter} is not a parameter of" in output
            assert users[parameter][0] in output.replace("\n", " ")
