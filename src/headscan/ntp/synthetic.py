"""Data with known statistics: random sparse supports, all k-subsets, and a grammar that writes simplified stories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

from headscan.ntp.arrays import Ints
from headscan.ntp.labels import SoftLabels
from headscan.run import BadInput

__all__ = ["StoryGrammar", "random_labels"]


def random_labels(
    vocabulary: int,
    contexts: int,
    *,
    supports: int | None = None,
    sizes: tuple[int, int] = (1, 4),
    zipf: float = 0.0,
    concentration: float = 1.0,
    seed: int = 0,
    uniform_prior: bool = True,
) -> SoftLabels:
    """Random sparse supports with soft labels.

    Draws `supports` distinct-or-not supports (default: one a context) of a size uniform in `sizes` (inclusive),
    tokens by a Zipf law of exponent `zipf` (0 = uniform), and soft labels from a symmetric Dirichlet, floored so that
    every token of the support has at least a tenth of its fair share. With `supports` < `contexts` several contexts
    share a support, which is where subspace collapse shows.

    >>> labels = random_labels(10, 95, supports=30, seed=1)
    >>> labels.contexts, labels.supports.unique()[0].contexts <= 30
    (95, True)
    """
    low, high = sizes
    if not 1 <= low <= high <= vocabulary:
        raise BadInput(f"Support sizes must lie between 1 and {vocabulary}, smaller first.")
    rng = np.random.default_rng(seed)
    law = np.arange(1, vocabulary + 1, dtype=np.float64) ** -zipf
    law /= law.sum()
    kinds = contexts if supports is None else supports
    drawn = [
        np.sort(rng.choice(vocabulary, int(rng.integers(low, high + 1)), replace=False, p=law)) for _ in range(kinds)
    ]
    which = np.arange(contexts)
    which[kinds:] = rng.integers(0, kinds, size=max(contexts - kinds, 0))
    probability = np.zeros((contexts, vocabulary))
    for j, kind in enumerate(which):
        support = drawn[kind]
        probability[j, support] = 0.9 * rng.dirichlet(np.full(len(support), concentration)) + 0.1 / len(support)
    prior = np.full(contexts, 1.0 / contexts) if uniform_prior else rng.dirichlet(np.ones(contexts))
    return SoftLabels.from_probability(probability, prior)


_PEOPLE = {"lily": "she", "anna": "she", "tom": "he", "ben": "he", "mom": "she", "dad": "he"}
_ANIMALS = {"dog": "barked", "cat": "purred", "bird": "sang", "frog": "jumped"}
_THINGS = {
    "found": ("ball", "key", "box", "shell", "stone"),
    "ate": ("apple", "cake", "soup", "cookie"),
    "saw": ("dog", "cat", "bird", "frog", "tree", "moon"),
    "made": ("cake", "soup", "house", "boat"),
    "lost": ("ball", "key", "hat"),
}
_PLACES = {"in": ("park", "garden", "house", "box"), "at": ("school", "home"), "near": ("tree", "river", "lake")}
_ADJECTIVES = {
    **dict.fromkeys(("ball", "box", "hat", "house", "boat", "shell", "stone"), ("red", "blue", "big", "small")),
    **dict.fromkeys(("apple", "cake", "soup", "cookie"), ("sweet", "hot", "good")),
    **dict.fromkeys(("dog", "cat", "bird", "frog"), ("big", "small", "friendly", "sad")),
    **dict.fromkeys(("tree", "moon", "key"), ("big", "old", "bright")),
}
_FEELINGS = {"found": ("happy", "proud"), "ate": ("happy", "full"), "saw": ("happy", "scared", "surprised"),
             "made": ("proud", "happy"), "lost": ("sad", "worried")}  # fmt: skip
_STARTS = ("once upon a time there was a {kind} named {name} .", "one day {name} went to the {place} .")


class StoryGrammar:
    """A probabilistic grammar that writes simplified stories, with the entropy of every choice known.

    A story is a few sentences about one person, with verbs, objects, places and feelings that go together: the things a
    child's story repeats. `vocabulary` lists all words; `stories` yields documents as int64 arrays of word ids.

    >>> grammar = StoryGrammar()
    >>> story = next(grammar.stories(1, seed=3))
    >>> grammar.text(story).split()[0] in {"once", "one"}
    True
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        seen: set[str] = set()
        for _ in range(4000):
            seen.update(self._story(rng))
        self.vocabulary = sorted(seen)
        self._ids = {word: i for i, word in enumerate(self.vocabulary)}

    def stories(self, count: int | None = None, *, seed: int = 0) -> Iterator[Ints]:
        """`count` stories (endless if None) as int64 arrays of word ids; the same seed gives the same stories."""
        rng = np.random.default_rng([seed, 1])

        def endless() -> Iterator[Ints]:
            while True:
                words = self._story(rng)
                if all(word in self._ids for word in words):
                    yield np.array([self._ids[word] for word in words], dtype=np.int64)

        return islice(endless(), count)

    def text(self, story: Ints) -> str:
        """The words of a story, joined by spaces."""
        return " ".join(self.vocabulary[i] for i in story)

    def _story(self, rng: np.random.Generator) -> list[str]:
        def pick(options: Iterable[str]) -> str:
            among = tuple(options)
            weight = np.arange(len(among), 0, -1, dtype=np.float64)  # earlier options are likelier
            return among[int(rng.choice(len(among), p=weight / weight.sum()))]

        name = pick(_PEOPLE)
        start = _STARTS[int(rng.random() < 0.4)]
        place = pick(_PLACES["in"])
        words = start.format(kind="girl" if _PEOPLE[name] == "she" else "boy", name=name, place=place).split()
        for _ in range(int(rng.integers(1, 4))):
            words += self._sentence(name, pick, rng)
        return [*words, "the", "end", "."]

    def _sentence(self, name: str, pick: Callable[[Iterable[str]], str], rng: np.random.Generator) -> list[str]:
        subject = name if rng.random() < 0.4 else _PEOPLE[name]
        verb = pick(_THINGS)
        thing = pick(_THINGS[verb])
        words = [subject, verb, "a" if rng.random() < 0.7 else "the"]
        if rng.random() < 0.6:
            words.append(pick(_ADJECTIVES[thing]))
        words.append(thing)
        if rng.random() < 0.4:
            preposition = pick(_PLACES)
            words += [preposition, "the", pick(_PLACES[preposition])]
        words.append(".")
        if thing in _ANIMALS and rng.random() < 0.5:
            words += ["the", thing, _ANIMALS[thing], "."]
        if rng.random() < 0.5:
            words += [_PEOPLE[name], "was", pick(_FEELINGS[verb]), "."]
        return words
