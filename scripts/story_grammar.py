"""A grammar that writes simplified stories: text with known statistics."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from headscan.ntp.labels import Ints, SoftLabels
from headscan.text.counts import count
from headscan.text.source import Counting

_PEOPLE = {"lily": "she", "anna": "she", "tom": "he", "ben": "he", "mom": "she", "dad": "he"}
_ANIMALS = {"dog": "barked", "cat": "purred", "bird": "sang", "frog": "jumped"}
_THINGS = {
    "found": ("ball", "key", "box", "shell", "stone"),
    "ate": ("apple", "cake", "soup", "cookie"),
    "saw": ("dog", "cat", "bird", "frog", "tree", "moon"),
    "made": ("cake", "soup", "house", "boat"),
    "lost": ("ball", "key", "hat"),
}
_PLACES = {
    "in": ("park", "garden", "house", "box"),
    "at": ("school", "home"),
    "near": ("tree", "river", "lake"),
}
_ADJECTIVES = {
    **dict.fromkeys(
        ("ball", "box", "hat", "house", "boat", "shell", "stone"), ("red", "blue", "big", "small")
    ),
    **dict.fromkeys(("apple", "cake", "soup", "cookie"), ("sweet", "hot", "good")),
    **dict.fromkeys(("dog", "cat", "bird", "frog"), ("big", "small", "friendly", "sad")),
    **dict.fromkeys(("tree", "moon", "key"), ("big", "old", "bright")),
}
_FEELINGS = {
    "found": ("happy", "proud"),
    "ate": ("happy", "full"),
    "saw": ("happy", "scared", "surprised"),
    "made": ("proud", "happy"),
    "lost": ("sad", "worried"),
}
_STARTS = (
    "once upon a time there was a {kind} named {name} .",
    "one day {name} went to the {place} .",
)


class StoryGrammar:
    """A probabilistic grammar that writes simplified stories.

    A story is a few sentences about one person, with verbs, objects, places and feelings that go
    together: the things a child's story repeats. `vocabulary` lists all words; `stories` yields
    documents as int64 arrays of word ids.

    >>> grammar = StoryGrammar()
    >>> story = next(grammar.stories(1, seed=3))
    >>> grammar.text(story).split()[0] in {"once", "one"}
    True
    """

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        words: set[str] = set()
        for _ in range(4000):
            words.update(_story(generator))
        self.vocabulary = sorted(words)
        self._ids = {word: number for number, word in enumerate(self.vocabulary)}

    def stories(self, count: int, *, seed: int = 0) -> Iterator[Ints]:
        """Yield `count` stories as int64 arrays of word ids; a seed always gives the same ones."""
        generator = np.random.default_rng([seed, 1])
        written = 0
        while written < count:
            words = _story(generator)
            if self._ids.keys() >= set(words):
                yield np.array([self._ids[word] for word in words], dtype=np.int64)
                written += 1

    def text(self, story: Ints) -> str:
        """Return the words of a story, joined by spaces."""
        return " ".join(self.vocabulary[number] for number in story)


def _pick(generator: np.random.Generator, options: Iterable[str]) -> str:
    """Return one of the options; earlier ones are likelier."""
    choices = tuple(options)
    weights = np.arange(len(choices), 0, -1, dtype=np.float64)
    return choices[int(generator.choice(len(choices), p=weights / weights.sum()))]


def _story(generator: np.random.Generator) -> list[str]:
    name = _pick(generator, _PEOPLE)
    start = _STARTS[int(generator.random() < 0.4)]
    location = _pick(generator, _PLACES["in"])
    kind = "girl" if _PEOPLE[name] == "she" else "boy"
    words = start.format(kind=kind, name=name, place=location).split()
    for _ in range(int(generator.integers(1, 4))):
        words += _sentence(generator, name)
    return [*words, "the", "end", "."]


def _sentence(generator: np.random.Generator, name: str) -> list[str]:
    """Return a sentence about a person, and up to two that follow from it."""
    subject = name if generator.random() < 0.4 else _PEOPLE[name]
    verb = _pick(generator, _THINGS)
    object_ = _pick(generator, _THINGS[verb])
    words = [subject, verb, "a" if generator.random() < 0.7 else "the"]
    if generator.random() < 0.6:
        words.append(_pick(generator, _ADJECTIVES[object_]))
    words.append(object_)
    if generator.random() < 0.4:
        preposition = _pick(generator, _PLACES)
        words += [preposition, "the", _pick(generator, _PLACES[preposition])]
    words.append(".")
    if object_ in _ANIMALS and generator.random() < 0.5:
        words += ["the", object_, _ANIMALS[object_], "."]
    if generator.random() < 0.5:
        words += [_PEOPLE[name], "was", _pick(generator, _FEELINGS[verb]), "."]
    return words


def story_labels(order: int, stories: int, seed: int) -> tuple[npt.NDArray[np.int64], SoftLabels]:
    """Return the contexts [m, order] and soft labels of a grammar's stories.

    >>> contexts, labels = story_labels(1, 20, 0)
    >>> contexts.shape[0] == labels.contexts
    True
    """
    grammar = StoryGrammar()
    counts = count(
        grammar.stories(stories, seed=seed), len(grammar.vocabulary), Counting(order=order)
    )
    return np.asarray(counts.contexts, dtype=np.int64), SoftLabels.of(counts.matrix())
