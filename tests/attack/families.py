"""The families of adversarial inversions: what is done to which outputs of which model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import count as numbers
from itertools import islice, product

import torch
from torch import Tensor

from headscan.model import Lens
from tests.attack.inversions import ORDERS, SITES, Attack, fresh, slice_of

KINDS = ("gpt2", "llama")
Make = Callable[[int, str, str, str], Attack]
FAMILIES: dict[str, Make] = {}


def family(name: str) -> Callable[[Make], Make]:
    """Register a family: from a number (of the seed), a kind of model, a site and an order to an attack."""
    return lambda make: FAMILIES.setdefault(name, make)


def prompts(lens: Lens, seed: int, rows: int = 4, length: int = 4) -> list[list[int]]:
    """Random token ids."""
    draw = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(lens.vocabulary_size, (rows, length), generator=draw).tolist()


def outputs(lens: Lens, site: str, ids: list[list[int]], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """What the slice gives, float32."""
    return [slice_of(lens, site, dtype).run([row])[0].float() for row in ids]


def noise(seed: int, like: Tensor) -> Tensor:
    """A standard normal tensor."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like)


def attack(
    name: str, seed: int, kind: str, site: str, order: str, hurt: Callable[[int, Tensor], Tensor] | None = None,
    *, foreign: bool = True, length: int = 4, **options: object,
) -> Attack:  # fmt: skip
    """A fresh model's outputs, each hurt by `hurt(number, states)`; foreign: no tokens give what comes of it."""
    lens = fresh(kind, seed)
    ids = prompts(lens, seed, length=length)
    states = outputs(lens, site, ids)
    if hurt is not None:
        states = [hurt(number, one.clone()) for number, one in enumerate(states)]
    truth = [None] * len(ids) if hurt is not None and foreign else ids
    return Attack(name, lens, site, states, truth, clean=hurt is None, order=order, **options)  # type: ignore[arg-type]


@family("clean")
def clean(seed: int, kind: str, site: str, order: str) -> Attack:
    """Nothing is done: all must come back."""
    return attack("clean", seed, kind, site, order)


@family("length 1")
def short(seed: int, kind: str, site: str, order: str) -> Attack:
    """Prompts of one token."""
    return attack("length 1", seed, kind, site, order, length=1)


@family("NaN and infinity")
def no_number(seed: int, kind: str, site: str, order: str) -> Attack:
    """One number of one row, or a whole row, is none."""

    def hurt(number: int, states: Tensor) -> Tensor:
        bad = (float("nan"), float("inf"), -float("inf"), float("nan"))[number]
        states[number % len(states), : 1 if number < 3 else None] = bad
        return states

    return attack("NaN and infinity", seed, kind, site, order, hurt, tolerance=(None, 1.0, 1e30)[seed % 3])


@family("nearly equal rows")
def near(seed: int, kind: str, site: str, order: str) -> Attack:
    """Most rows of the embedding differ by 1e-9 to 1e-3 of their norm; prompts are of these."""
    lens = fresh(kind, seed)
    table = lens.model.get_input_embeddings().weight.data
    spread = 10.0 ** -(3 + seed % 7)
    table[10:40] = table[10] + spread * table[10].norm() / table.shape[1] ** 0.5 * noise(seed, table[10:40])
    ids = (torch.tensor(prompts(lens, seed)) % 30 + 10).tolist()
    ask = ("auto", "exhaustive", "sampled")[seed % 3]
    return Attack("nearly equal rows", lens, site, outputs(lens, site, ids), ids, clean=True, order=order, ask=ask)


@family("duplicate rows")
def duplicate(seed: int, kind: str, site: str, order: str) -> Attack:
    """Tokens with equal vectors: ambiguous by construction."""
    lens = fresh(kind, seed)
    table = lens.model.get_input_embeddings().weight.data
    table[20:40] = table[:20]
    ids = (torch.tensor(prompts(lens, seed)) % 40).tolist()
    ask = ("auto", "sampled")[seed % 2]
    return Attack("duplicate rows", lens, site, outputs(lens, site, ids), ids, clean=True, order=order, ask=ask)


@family("the wrong model")
def wrong(seed: int, kind: str, site: str, order: str) -> Attack:
    """Outputs of another model of the same shape."""
    lens = fresh(kind, seed)
    other = copy.deepcopy(lens.model)
    draw = torch.Generator().manual_seed(seed)
    for parameter in other.parameters():
        parameter.data.copy_(parameter.data[..., torch.randperm(parameter.shape[-1], generator=draw)])
    ids = prompts(lens, seed)
    return Attack("the wrong model", lens, site, outputs(Lens(other), site, ids), ids, order=order)


@family("weights off by 1e-3 to 1e-7")
def off(seed: int, kind: str, site: str, order: str) -> Attack:
    """The victim's weights differ a little."""
    lens = fresh(kind, seed)
    other = copy.deepcopy(lens.model)
    share = 10.0 ** -(3 + seed % 5)
    for number, parameter in enumerate(other.parameters()):
        parameter.data += share * parameter.data.abs().mean() * noise(seed + number, parameter.data)
    ids = prompts(lens, seed)
    return Attack("weights off by 1e-3 to 1e-7", lens, site, outputs(Lens(other), site, ids), ids, order=order)


@family("permuted")
def permuted(seed: int, kind: str, site: str, order: str) -> Attack:
    """Positions or features in another order."""

    def hurt(number: int, states: Tensor) -> Tensor:
        return states.flip(0) if number % 2 else states.roll(1 + number, dims=1)

    return attack("permuted", seed, kind, site, order, hurt)


@family("scaled")
def scaled(seed: int, kind: str, site: str, order: str) -> Attack:
    """Multiplied by a number near 1, by 2, 0, -1, or one beyond float32's squares."""
    factors = (1 + 1e-3, 1 + 1e-6, 2.0, 0.0, -1.0, 1e-30, 1e30, 1 + 1e-5)

    def hurt(number: int, states: Tensor) -> Tensor:
        return states * factors[(number + 4 * (seed % 2)) % 8]

    return attack("scaled", seed, kind, site, order, hurt)


@family("a tiny embedding")
def tiny(seed: int, kind: str, site: str, order: str) -> Attack:
    """A model whose outputs at the embedding have squares below float32's least number."""
    lens = fresh(kind, seed)
    for parameter in lens.model.parameters():
        parameter.data *= 1e-25 if parameter.ndim > 1 else 1
    ids = prompts(lens, seed)
    return Attack("a tiny embedding", lens, site, outputs(lens, site, ids), ids, order=order)


@family("soft prompts")
def soft(seed: int, kind: str, site: str, order: str) -> Attack:
    """Vectors of no token: random, between two tokens, or near one."""
    lens = fresh(kind, seed)
    cut, ids = slice_of(lens, site), prompts(lens, seed)
    states = []
    for number, row in enumerate(ids):
        vectors = cut.embed(torch.tensor([row]))
        spread = float(vectors.std())
        moved = (
            spread * noise(seed, vectors),
            (vectors + vectors.roll(1, 1)) / 2,
            vectors + 1e-3 * spread * noise(seed, vectors),
            vectors + 1e-4 * spread * noise(seed, vectors),
        )[number]
        states.append(cut.run(inputs_embeds=moved)[0].float())
    return Attack("soft prompts", lens, site, states, [None] * len(ids), order=order)


@family("another tokenizer")
def tokenizer(seed: int, kind: str, site: str, order: str) -> Attack:
    """The victim's token ids mean other rows, and the vocabulary searched lacks some of them."""
    lens = fresh(kind, seed)
    ids = prompts(lens, seed)
    allowed = torch.zeros(lens.vocabulary_size, dtype=torch.bool)
    allowed[: lens.vocabulary_size // 2] = True
    states = outputs(lens, site, ids)
    truth = [row if all(allowed[token] for token in row) else None for row in ids]
    return Attack("another tokenizer", lens, site, states, truth, order=order, allowed=allowed)


@family("half precision and its overflow")
def half(seed: int, kind: str, site: str, order: str) -> Attack:
    """float16 and bfloat16, with weights that overflow in every other model."""
    lens, dtype = fresh(kind, seed), (torch.float16, torch.bfloat16)[seed % 2]
    if seed % 4 >= 2:
        for parameter in lens.model.parameters():
            parameter.data *= 300
    ids = prompts(lens, seed)
    return Attack(
        "half precision and its overflow", lens, site, outputs(lens, site, ids, dtype), ids, order=order, dtype=dtype
    )


@family("another site")
def elsewhere(seed: int, kind: str, site: str, order: str) -> Attack:
    """Outputs of another site of the same model."""
    lens = fresh(kind, seed)
    ids, other = prompts(lens, seed), "embedding" if site != "embedding" else "block.0"
    return Attack("another site", lens, site, outputs(lens, other, ids), [None] * len(ids), order=order)


@family("a wide tolerance")
def wide(seed: int, kind: str, site: str, order: str) -> Attack:
    """A tolerance that holds other tokens, too."""
    tolerance, ask = (0.3, 1.0, 2.0, 10.0)[seed % 4], ("auto", "sampled")[seed // 4 % 2]
    return replace_clean(attack("a wide tolerance", seed, kind, site, order, tolerance=tolerance, ask=ask))


def replace_clean(one: Attack) -> Attack:
    """Nothing need come back of it."""
    one.clean = False
    return one


def attacks(count: int) -> Iterator[Attack]:
    """`count` inversions, four an attack, all families in turn over kinds, sites and orders."""
    settings = list(product(SITES, ORDERS, KINDS))

    def every() -> Iterator[Attack]:
        for seed in numbers():
            for place, make in enumerate(FAMILIES.values()):
                site, order, kind = settings[(5 * seed + 7 * place) % len(settings)]
                yield make(seed, kind, site, order)

    yield from islice(every(), (count + 3) // 4)
