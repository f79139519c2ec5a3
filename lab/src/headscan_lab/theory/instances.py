"""Embeddings narrower than the vocabulary:  min CE(H Wᵀ) + λ/2 (‖W‖² + ‖H‖²)  with d < V - 1, and
how far from the optimum.

The problem is not convex in (W, H), but the convex problem CE(L) + λ‖L‖_* bounds it from below, and
a stationary point whose gradient G = ∇CE(L) has spectral norm at most λ *is* its solution: then
width d loses nothing. Otherwise the dual of the convex problem (see `path`) proves how much is lost
at most.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb, sqrt

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from headscan.ntp.labels import CountsLike, Floats, Ints, SoftLabels, Supports
from headscan.run import BadInput


@dataclass(frozen=True, eq=False)
class LowWidth:
    """A stationary point in width d with its certificate.

    `primal` is CE + λ/2(‖W‖² + ‖H‖²) in nats; `dual` a proven lower bound of it over every width;
    `gap` their difference. `spectral_ratio` = ‖∇CE(L)‖₂/λ: 1 at a global optimum, above 1 if a
    wider embedding would do better. `globally_optimal` says that the gap is below the tolerance, so
    that this width loses nothing.
    """

    words: Floats
    contexts: Floats
    primal: float
    dual: float
    gap: float
    spectral_ratio: float
    globally_optimal: bool

    @property
    def logits(self) -> Floats:
        return self.contexts @ self.words.T


def narrow(
    counts: CountsLike,
    width: int,
    penalty: float,
    *,
    starts: int = 3,
    seed: int = 0,
    gap: float = 1e-6,
) -> LowWidth:
    """Solve in width d by L-BFGS on (W, H) from `starts` random points (zero is a saddle, so never
    from there).

    `gap` is relative to the objective's excess over H. Cost: O(m V d) an iteration. Raises
    `BadInput` for a width below one.

    >>> found = narrow(np.eye(4), width=3, penalty=1e-3)
    >>> found.globally_optimal, round(found.spectral_ratio, 3)
    (True, 1.0)
    >>> narrow(np.eye(4), width=1, penalty=1e-3).globally_optimal
    False
    """
    labels = SoftLabels.of(counts)
    if width < 1 or penalty <= 0:
        raise BadInput("The width must be at least one and the penalty positive.")
    P = labels.dense()
    prior = labels.prior
    V = labels.vocabulary
    m = labels.contexts
    rng = np.random.default_rng(seed)

    def objective(x: Floats) -> tuple[float, Floats]:
        W = x[: V * width].reshape(V, width)
        H = x[V * width :].reshape(m, width)
        L = H @ W.T
        top = logsumexp(L, axis=1)
        G = (np.exp(L - top[:, None]) - P) * prior[:, None]
        value = prior @ (top - (P * L).sum(1)) + penalty / 2 * (x @ x)
        return float(value), np.concatenate(
            [(G.T @ H + penalty * W).ravel(), (G @ W + penalty * H).ravel()]
        )

    best = None
    options = {"maxiter": 3000, "maxfun": 6000, "gtol": 1e-10, "ftol": 1e-16, "maxcor": 30}
    for _ in range(starts):
        x0 = rng.normal(size=(V + m) * width) * 0.3
        found = minimize(objective, x0, jac=True, method="L-BFGS-B", options=options)
        if best is None or found.fun < best.fun:
            best = found
    assert best is not None
    W = best.x[: V * width].reshape(V, width)
    H = best.x[V * width :].reshape(m, width)
    return _certified(labels, P, W, H, penalty, float(best.fun), gap)


def _certified(
    labels: SoftLabels, P: Floats, W: Floats, H: Floats, penalty: float, primal: float, gap: float
) -> LowWidth:
    prior = labels.prior
    L = H @ W.T
    softmax = np.exp(L - logsumexp(L, axis=1)[:, None])
    norm = float(np.linalg.norm((softmax - P) * prior[:, None], 2))
    alpha = min(1.0, penalty / norm) if norm > 0 else 1.0
    mixed = (1 - alpha) * P + alpha * softmax
    entropies = -np.where(mixed > 0, mixed * np.log(np.maximum(mixed, 1e-300)), 0.0).sum(1)
    dual = float(prior @ entropies)
    optimal = bool(primal - dual <= gap * max(primal - labels.entropy(), 1e-300))
    return LowWidth(W, H, primal, dual, max(primal - dual, 0.0), norm / penalty, optimal)


# ---- Data whose geometry is known exactly: all k-subsets as supports, and one-hot labels (k = 1).


def all_subsets(vocabulary: int, size: int) -> Supports:
    """Every subset of `size` tokens as the support of one context: C(V, k) contexts.

    >>> all_subsets(4, 2).contexts
    6
    """
    if not 1 <= size < vocabulary:
        raise BadInput(f"The support size must lie between 1 and {vocabulary - 1}.")
    rows = np.array(list(combinations(range(vocabulary), size)), dtype=np.int32)
    return Supports(np.arange(len(rows) + 1, dtype=np.int64) * size, rows.ravel(), vocabulary)


@dataclass(frozen=True)
class KSubsets:
    """The exact solution when every k-subset of V tokens is the support of one context
    (arXiv:2408.15417, Prop. 2).

    There L^mm = S~, S~ᵀS~ = C(V-2, k-1) (I - 11ᵀ/V), so all V - 1 singular values are equal. Words
    form a simplex equiangular tight frame; the embedding of a context is parallel to the sum of the
    words of its support.

    >>> exact = KSubsets(4, 2)
    >>> exact.singular_value, round(exact.word_word_cosine, 4)
    (1.4142135623730951, -0.3333)
    >>> round(exact.word_context_cosine_in, 4), round(exact.word_context_cosine_off, 4)
    (0.5774, -0.5774)
    """

    vocabulary: int
    size: int

    @property
    def singular_value(self) -> float:
        return sqrt(comb(self.vocabulary - 2, self.size - 1))

    @property
    def nuclear_norm(self) -> float:
        return (self.vocabulary - 1) * self.singular_value

    @property
    def word_norm_squared(self) -> float:
        return (1 - 1 / self.vocabulary) * self.singular_value

    @property
    def context_norm_squared(self) -> float:
        return (self.size - self.size**2 / self.vocabulary) / self.singular_value

    @property
    def word_word_cosine(self) -> float:
        return -1 / (self.vocabulary - 1)

    def context_context_cosine(self, shared: int) -> float:
        """cos(h_j, h_j') for supports that share `shared` tokens: (shared - k²/V) / (k - k²/V)."""
        base = self.size**2 / self.vocabulary
        return (shared - base) / (self.size - base)

    # The paper's equation 40c prints √((V-1)/(k(V-k))) inside and -1/√(k(V-k)(V-1)) outside the
    # support. Both follow from dividing ⟨w_v, h_j⟩ = 1 - k/V (inside) and -k/V (outside) by the
    # norms above; doing so gives what stands here. The two agree only for k = 1.
    @property
    def word_context_cosine_in(self) -> float:
        return sqrt((self.vocabulary - self.size) / (self.size * (self.vocabulary - 1)))

    @property
    def word_context_cosine_off(self) -> float:
        return -sqrt(self.size / ((self.vocabulary - self.size) * (self.vocabulary - 1)))

    @property
    def printed_word_context_cosine_in(self) -> float:
        return sqrt((self.vocabulary - 1) / (self.size * (self.vocabulary - self.size)))

    @property
    def printed_word_context_cosine_off(self) -> float:
        return -1 / sqrt(self.size * (self.vocabulary - self.size) * (self.vocabulary - 1))


# ---- Data with known statistics: random sparse supports, all k-subsets, and a grammar that writes simplified stories.


def random_labels(
    vocabulary: int,
    contexts: int,
    *,
    supports: int | None = None,
    sizes: tuple[int, int] = (1, 4),
    concentration: float = 1.0,
    seed: int = 0,
) -> SoftLabels:
    """Random sparse supports with soft labels.

    Draws `supports` distinct-or-not supports (default: one a context) of a size uniform in `sizes`
    (inclusive), and soft labels from a symmetric Dirichlet, floored so that every token of the
    support has at least a tenth of its fair share. With `supports` < `contexts` several contexts
    share a support, which is where subspace collapse shows.

    >>> labels = random_labels(10, 95, supports=30, seed=1)
    >>> labels.contexts, labels.supports.unique()[0].contexts <= 30
    (95, True)
    """
    low, high = sizes
    if not 1 <= low <= high <= vocabulary:
        raise BadInput(f"Support sizes must lie between 1 and {vocabulary}, smaller first.")
    rng = np.random.default_rng(seed)
    law = np.full(vocabulary, 1 / vocabulary)
    kinds = contexts if supports is None else supports
    drawn = [
        np.sort(rng.choice(vocabulary, int(rng.integers(low, high + 1)), replace=False, p=law))
        for _ in range(kinds)
    ]
    which = np.arange(contexts)
    which[kinds:] = rng.integers(0, kinds, size=max(contexts - kinds, 0))
    probability = np.zeros((contexts, vocabulary))
    for j, kind in enumerate(which):
        support = drawn[kind]
        probability[j, support] = 0.9 * rng.dirichlet(
            np.full(len(support), concentration)
        ) + 0.1 / len(support)
    return SoftLabels.from_probability(probability)


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
    """A probabilistic grammar that writes simplified stories, with the entropy of every choice
    known.

    A story is a few sentences about one person, with verbs, objects, places and feelings that go
    together: the things a child's story repeats. `vocabulary` lists all words; `stories` yields
    documents as int64 arrays of word ids.

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

    def stories(self, count: int, *, seed: int = 0) -> Iterator[Ints]:
        """`count` stories as int64 arrays of word ids; the same seed gives the same stories."""
        rng = np.random.default_rng([seed, 1])
        known = (
            words for words in iter(lambda: self._story(rng), []) if self._ids.keys() >= set(words)
        )
        for words in islice(known, count):
            yield np.array([self._ids[word] for word in words], dtype=np.int64)

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
        words = start.format(
            kind="girl" if _PEOPLE[name] == "she" else "boy", name=name, place=place
        ).split()
        for _ in range(int(rng.integers(1, 4))):
            words += self._sentence(name, pick, rng)
        return [*words, "the", "end", "."]

    def _sentence(
        self, name: str, pick: Callable[[Iterable[str]], str], rng: np.random.Generator
    ) -> list[str]:
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
