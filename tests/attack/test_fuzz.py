"""A few of the drawn command lines in every run of the suite; thousands in `make attack`."""

from __future__ import annotations

import random

import pytest

from tests.attack.fuzz import VERBS, attack, literals, members, parameters, run


def test_no_drawn_command_line_ends_in_a_traceback():
    assert attack(12, seed=1) == []


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "models"])
def test_an_option_that_the_chosen_item_does_not_use_is_refused_by_name(verb):
    """Drawn: an item of one of the verb's registries, and a parameter that belongs to others only."""
    command, fields, _, registries = parameters(verb)
    draw = random.Random(verb)
    for name, registry in registries.items():
        options = registry.options()
        pairs = [
            (item, one)
            for item in registry
            for one, (_, users) in options.items()
            if item not in users and one not in fields
        ]
        for item, one in draw.sample(pairs, min(6, len(pairs))):
            field, users = options[one]
            words = [verb, *(["gpt-vanilla-early"] if command.subject else []), fields[name].flag, item, field.flag]
            words += [] if bool in members(field.type) else [next(iter(literals(field.type)), "2")]
            for other in fields.values():
                if other.required:
                    words += [other.flag, "stories"]
            status, said, _ = run(words)
            assert status == 2, f"{' '.join(words)}: {said}"
            assert field.flag in said
            assert all(user in said.replace("\n", " ") for user in users[:1])
