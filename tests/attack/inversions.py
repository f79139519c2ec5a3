"""Adversarial inversions: outputs made to draw a false word from a certificate, and the words
checked against brute force.

`python -m tests.attack.inversions 500` runs them, by every method of the verb, and prints a table,
a row a family of attacks and one a method. Every claim of an entry is compared with all tokens, or
all prompts, run in float64 without a cache.
"""

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import get_args, get_type_hints

import torch
from torch import Tensor

from headscan.inversion import Direct, Exact, Indirect, Joint, JointSearch, PromptInversion
from headscan.inversion.assess import assess
from headscan.inversion.leaked import foreign, solve_unknown
from headscan.inversion.methods import METHODS, Method, Problem
from headscan.inversion.sequential import Sequential
from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import BadInput
from headscan.text.prompts import Prompt
from tests.attack.brute import AMBIGUOUS, FOREIGN, TRIED, UNIQUE, false_words
from tests.inversion.conftest import build

SITES = ("embedding", "block.0", "block.-1")
# Long descents and long backtracking take most of the time where nothing is to be found;
# certificates know nothing of them.
QUICK = JointSearch(restarts=1, steps=60, budget=4000, longer=())
ORDERS: dict[str, Method] = {
    f"exact, {order}": Exact(order=order, backtracks=2, hidden=QUICK)
    for order in get_args(get_args(get_type_hints(Exact, include_extras=True)["order"])[0])
}
OTHERS: dict[str, Method] = {
    "joint": Joint(**{field.name: getattr(QUICK, field.name) for field in fields(QUICK)}),
    "indirect": Indirect(steps=80),
    "sequential": Sequential(steps=40),
    "direct": Direct(steps=80),
    "direct, as published": Direct(preset="seed", steps=40),
}
WAYS = ORDERS | OTHERS
assert {way.name for way in WAYS.values()} == set(METHODS.names()) - {"auto"}


@dataclass
class Attack:
    """Outputs of several prompts, given to one search.

    Attributes:
        family: what is done.
        lens: the model that inverts; site: where.
        targets: outputs, one a prompt [T', w].
        truth: the tokens that gave each, None where no tokens of this model did.
        clean: whether nothing was done to the outputs, so that an exact search must recover them.
        way, tolerance, ask, allowed: of the search, by its name in `WAYS`, and its certificate.
        cutting: the slice of a model where it is not the whole of a site.
        length: of the prompts where it is not that of the outputs; `whole`: all prompts of this
            length are run, too.
        unknown: the outputs are states that leaked, through noise of which nobody knows how much it
            is.
    """

    family: str
    lens: Lens
    site: str
    targets: list[Tensor]
    truth: list[list[int] | None]
    clean: bool = False
    way: str = next(iter(ORDERS))
    tolerance: float | None = None
    ask: str = "auto"
    allowed: Tensor | None = None
    dtype: torch.dtype = torch.float32
    cutting: Callable[[Lens], SlicedModel] | None = None
    length: int | None = None
    unknown: bool = False

    def cut(self, dtype: torch.dtype) -> SlicedModel:
        """The slice, in a precision."""
        if self.cutting is None:
            return slice_of(self.lens, self.site, dtype)
        self.lens.model.to(dtype)
        return self.cutting(self.lens)

    @property
    def searched(self) -> bool:
        """Tell whether the search ends only where every token was tried: then what is there must be
        found.
        """
        return self.way in ORDERS and self.cutting is None

    @property
    def complete(self) -> bool:
        """Tell whether all prompts of the length are run, too."""
        return self.length is not None


def slice_of(lens: Lens, site: str, dtype: torch.dtype = torch.float32) -> SlicedModel:
    """The slice at a site, "block.-1" being the last block, in a precision."""
    name = f"block.{lens.depth - 1}" if site == "block.-1" else site
    lens.model.to(dtype)
    return Slice(sites=(name,)).on(lens)


def assessed(attack: Attack) -> list[PromptInversion]:
    """Return the entries of an attack, one a prompt, as the verb makes them."""
    cut = attack.cut(attack.dtype)
    method = WAYS[attack.way]
    lengths = [attack.length or len(target) for target in attack.targets]
    problem = Problem(
        cut=cut,
        targets=attack.targets,
        lengths=lengths,
        known=[{}] * len(lengths),
        tolerance=attack.tolerance,
        allowed=attack.allowed,
    )
    method = method.chosen(cut, lengths, ordered=cut.slice.pool is None)
    if attack.unknown:
        problem, solutions = solve_unknown(problem, method, 0.0)
    else:
        solutions = method.solve(problem)
    entries = []
    for number, solution in enumerate(solutions):
        ids = tuple(attack.truth[number] or [0] * lengths[number])
        prompt = Prompt("", ids, ("",) * len(ids), ((0, 0),) * len(ids), (False,) * len(ids))
        entry = assess(problem, number, prompt, solution, ask=attack.ask)
        entries.append(
            foreign(entry, solution, cut, cut.vocabulary_size) if attack.unknown else entry
        )
    return entries


def false_certificates(attack: Attack) -> Iterator[tuple[str, list[str]]]:
    """The verdict on each prompt of an attack, and what is false in it."""
    try:
        entries = assessed(attack)
    except BadInput as error:
        for _ in attack.targets:
            yield (
                "refused",
                [] if re.search("number|rounding", str(error)) else ["a refusal of something else"],
            )
        return
    for number, entry in enumerate(entries):  # afterwards: brute force changes the precision
        yield entry.verdict, false_words(attack, number, entry)


def fresh(kind: str, seed: int, vocabularies: tuple[int, ...] = (50, 120, 300)) -> Lens:
    """A tiny random model of its own."""
    draw = torch.Generator().manual_seed(seed)

    def pick(*choices: int) -> int:
        return choices[int(torch.randint(len(choices), (1,), generator=draw))]

    return build(
        kind, vocabulary=pick(*vocabularies), width=pick(16, 32, 64), depth=pick(1, 2, 3), seed=seed
    )


NAMES = (
    UNIQUE,
    TRIED,
    AMBIGUOUS,
    "information absent",
    "not recovered",
    FOREIGN,
    "refused",
    "false words",
)


def shown(head: str, table: dict[str, Counter[str]]) -> str:
    """A table of verdicts."""
    lines = [
        f"| {head} | inversions | " + " | ".join(NAMES) + " |",
        "|---" * (len(NAMES) + 2) + "|",
    ]
    for family, row in table.items():
        counts = [row[name] for name in NAMES]
        lines.append(f"| {family} | {sum(counts[:-1])} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def main(count: int) -> int:
    """Run so many inversions and print what they drew."""
    from tests.attack.families import attacks

    families: dict[str, Counter[str]] = {}
    ways: dict[str, Counter[str]] = {}
    faults = []
    start = time.time()
    done = 0
    clean = 0
    lost = 0
    for attack in attacks(count):
        for verdict, wrong in false_certificates(attack):
            for table, key in ((families, attack.family), (ways, attack.way)):
                table.setdefault(key, Counter())[verdict] += 1
                table[key]["false words"] += bool(wrong)
            faults += [
                (attack.family, attack.site, attack.way, attack.ask, sentence) for sentence in wrong
            ]
            clean += attack.clean and attack.searched
            lost += any("lost" in sentence for sentence in wrong)
            done += 1
    print(shown("attack", families) + "\n\n" + shown("method", ways), flush=True)
    print(
        f"{done} inversions, {len({f[:4] for f in faults})} attacks with false words, "
        f"{time.time() - start:.0f} s"
    )
    print(f"by exact search {lost} lost of {clean} to which nothing was done")
    for fault in faults[:30]:
        print(fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
