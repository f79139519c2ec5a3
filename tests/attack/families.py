"""The families of adversarial inversions: what is done to which outputs of which model."""

import copy
import random
from collections.abc import Callable, Iterator
from itertools import count as numbers
from itertools import islice, product

import torch
from torch import Tensor

from headscan.inversion.observation import EmbeddingSlice, NextTokenSlice
from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from tests.attack.inversions import ORDERS, OTHERS, SITES, Attack, fresh, slice_of

KINDS = ("gpt2", "llama")
Make = Callable[[int, str, str, str], Attack]
FAMILIES: dict[str, Make] = {}


def family(name: str) -> Callable[[Make], Make]:
    """Register a family: from a number (of the seed), a kind of model, a site and a way to search
    to an attack.
    """
    return lambda make: FAMILIES.setdefault(name, make)


def prompts(lens: Lens, seed: int, rows: int = 4, length: int = 4) -> list[list[int]]:
    """Random token ids."""
    draw = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(lens.vocabulary_size, (rows, length), generator=draw).tolist()


def outputs(
    lens: Lens, site: str, ids: list[list[int]], dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Return the outputs of the slice in float32."""
    return [slice_of(lens, site, dtype).run([row])[0].float() for row in ids]


def noise(seed: int, like: Tensor) -> Tensor:
    """A standard normal tensor."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like)


def attack(
    name: str,
    seed: int,
    kind: str,
    site: str,
    way: str,
    hurt: Callable[[int, Tensor], Tensor] | None = None,
    *,
    foreign: bool = True,
    length: int = 4,
    **options: object,
) -> Attack:
    """A fresh model's outputs, each hurt by `hurt(number, states)`; foreign: no tokens give what
    comes of it.
    """
    lens = fresh(kind, seed)
    ids = prompts(lens, seed, length=length)
    states = outputs(lens, site, ids)
    if hurt is not None:
        states = [hurt(number, state.clone()) for number, state in enumerate(states)]
    truth = [None] * len(ids) if hurt is not None and foreign else ids
    return Attack(name, lens, site, states, truth, clean=hurt is None, way=way, **options)  # type: ignore[arg-type]


@family("clean")
def clean(seed: int, kind: str, site: str, way: str) -> Attack:
    """Nothing is done: all must come back."""
    return attack("clean", seed, kind, site, way)


@family("length 1")
def short(seed: int, kind: str, site: str, way: str) -> Attack:
    """Prompts of one token."""
    return attack("length 1", seed, kind, site, way, length=1)


@family("NaN and infinity")
def no_number(seed: int, kind: str, site: str, way: str) -> Attack:
    """One number of one row, or a whole row, is none."""

    def hurt(number: int, states: Tensor) -> Tensor:
        bad = (float("nan"), float("inf"), -float("inf"), float("nan"))[number]
        states[number % len(states), : 1 if number < 3 else None] = bad
        return states

    return attack(
        "NaN and infinity", seed, kind, site, way, hurt, tolerance=(None, 1.0, 1e30)[seed % 3]
    )


@family("nearly equal rows")
def close_states(seed: int, kind: str, site: str, way: str) -> Attack:
    """Most rows of the embedding differ by 1e-9 to 1e-3 of their norm; prompts are of these."""
    lens = fresh(kind, seed)
    table = lens.model.get_input_embeddings().weight.data
    spread = 10.0 ** -(3 + seed % 7)
    table[10:40] = table[10] + spread * table[10].norm() / table.shape[1] ** 0.5 * noise(
        seed, table[10:40]
    )
    ids = (torch.tensor(prompts(lens, seed)) % 30 + 10).tolist()
    ask = ("auto", "exhaustive", "sampled")[seed % 3]
    tolerance = (None, None, 1e-7, 1e-5, 1e-3)[seed % 5]
    return Attack(
        "nearly equal rows",
        lens,
        site,
        outputs(lens, site, ids),
        ids,
        clean=tolerance is None,
        way=way,
        ask=ask,
        tolerance=tolerance,
    )


@family("duplicate rows")
def duplicate(seed: int, kind: str, site: str, way: str) -> Attack:
    """Tokens with equal vectors: ambiguous by construction."""
    lens = fresh(kind, seed)
    table = lens.model.get_input_embeddings().weight.data
    table[20:40] = table[:20]
    ids = (torch.tensor(prompts(lens, seed)) % 40).tolist()
    ask = ("auto", "sampled")[seed % 2]
    return Attack(
        "duplicate rows", lens, site, outputs(lens, site, ids), ids, clean=True, way=way, ask=ask
    )


@family("equal rows, elsewhere")
def twins(seed: int, kind: str, site: str, way: str) -> Attack:
    """Equal and nearly equal rows, and of each prompt something else: nothing, another order, scale
    or site, a stretch, noise.
    """
    lens = fresh(kind, seed)
    table = lens.model.get_input_embeddings().weight.data
    table[20:30] = table[:10]
    table[30:40] = table[:10] * (1 + 10.0 ** -(3 + seed % 7))
    ids = (torch.tensor(prompts(lens, seed)) % 40).tolist()
    states = outputs(lens, site, ids)
    other_site = "embedding" if site != "embedding" else "block.0"
    changes: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda state: state,
        lambda state: state.flip(0),
        lambda state: state * (2.0, 1 + 1e-6, 0.0)[seed % 3],
        lambda state: state.roll(1, 1),
        lambda state: state + 0.6 * state.norm() / state.numel() ** 0.5 * noise(seed, state),
    )
    picked = [(seed + number) % 6 for number in range(4)]
    states = [
        changes[pick](state) if pick < 5 else outputs(lens, other_site, [row])[0]
        for pick, state, row in zip(picked, states, ids, strict=True)
    ]
    truth = [row if pick == 0 else None for pick, row in zip(picked, ids, strict=True)]
    return Attack(
        "equal rows, elsewhere", lens, site, states, truth, way=way, unknown=bool(seed // 2 % 2)
    )


@family("the wrong model")
def wrong(seed: int, kind: str, site: str, way: str) -> Attack:
    """Outputs of another model of the same shape."""
    lens = fresh(kind, seed)
    wrong_model = copy.deepcopy(lens.model)
    draw = torch.Generator().manual_seed(seed)
    for parameter in wrong_model.parameters():
        parameter.data.copy_(
            parameter.data[..., torch.randperm(parameter.shape[-1], generator=draw)]
        )
    ids = prompts(lens, seed)
    return Attack(
        "the wrong model", lens, site, outputs(Lens(wrong_model), site, ids), ids, way=way
    )


@family("weights off by 1e-3 to 1e-7")
def off(seed: int, kind: str, site: str, way: str) -> Attack:
    """The victim's weights differ a little."""
    lens = fresh(kind, seed)
    changed = copy.deepcopy(lens.model)
    share = 10.0 ** -(3 + seed % 5)
    for number, parameter in enumerate(changed.parameters()):
        parameter.data += share * parameter.data.abs().mean() * noise(seed + number, parameter.data)
    ids = prompts(lens, seed)
    return Attack(
        "weights off by 1e-3 to 1e-7", lens, site, outputs(Lens(changed), site, ids), ids, way=way
    )


@family("permuted")
def permuted(seed: int, kind: str, site: str, way: str) -> Attack:
    """Positions or features in another order."""

    def hurt(number: int, states: Tensor) -> Tensor:
        return states.flip(0) if number % 2 else states.roll(1 + number, dims=1)

    return attack("permuted", seed, kind, site, way, hurt)


@family("scaled")
def scaled(seed: int, kind: str, site: str, way: str) -> Attack:
    """Multiplied by a number near 1, by 2, 0, -1, or one beyond float32's squares."""
    factors = (1 + 1e-3, 1 + 1e-6, 2.0, 0.0, -1.0, 1e-30, 1e30, 1 + 1e-5)

    def hurt(number: int, states: Tensor) -> Tensor:
        return states * factors[(number + 4 * (seed % 2)) % 8]

    return attack("scaled", seed, kind, site, way, hurt)


@family("a tiny embedding")
def tiny(seed: int, kind: str, site: str, way: str) -> Attack:
    """A model whose outputs at the embedding have squares below float32's least number."""
    lens = fresh(kind, seed)
    for parameter in lens.model.parameters():
        parameter.data *= 1e-25 if parameter.ndim > 1 else 1
    ids = prompts(lens, seed)
    return Attack("a tiny embedding", lens, site, outputs(lens, site, ids), ids, way=way)


@family("soft prompts")
def soft(seed: int, kind: str, site: str, way: str) -> Attack:
    """Vectors of no token: random, between two tokens, or near one."""
    lens = fresh(kind, seed)
    cut = slice_of(lens, site)
    ids = prompts(lens, seed)
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
    return Attack("soft prompts", lens, site, states, [None] * len(ids), way=way)


@family("another tokenizer")
def tokenizer(seed: int, kind: str, site: str, way: str) -> Attack:
    """The victim's token ids mean other rows, and the vocabulary searched lacks some of them."""
    lens = fresh(kind, seed)
    ids = prompts(lens, seed)
    allowed = torch.zeros(lens.vocabulary_size, dtype=torch.bool)
    allowed[: lens.vocabulary_size // 2] = True
    states = outputs(lens, site, ids)
    truth = [row if all(allowed[token] for token in row) else None for row in ids]
    return Attack("another tokenizer", lens, site, states, truth, way=way, allowed=allowed)


@family("half precision and its overflow")
def half(seed: int, kind: str, site: str, way: str) -> Attack:
    """float16 and bfloat16, with weights that overflow in every other model."""
    lens = fresh(kind, seed)
    dtype = (torch.float16, torch.bfloat16)[seed % 2]
    if seed % 4 >= 2:
        for parameter in lens.model.parameters():
            parameter.data *= 300
    ids = prompts(lens, seed)
    return Attack(
        "half precision and its overflow",
        lens,
        site,
        outputs(lens, site, ids, dtype),
        ids,
        way=way,
        dtype=dtype,
    )


@family("another site")
def elsewhere(seed: int, kind: str, site: str, way: str) -> Attack:
    """Outputs of another site of the same model."""
    lens = fresh(kind, seed)
    ids = prompts(lens, seed)
    other_site = "embedding" if site != "embedding" else "block.0"
    return Attack(
        "another site", lens, site, outputs(lens, other_site, ids), [None] * len(ids), way=way
    )


@family("a wide tolerance")
def wide(seed: int, kind: str, site: str, way: str) -> Attack:
    """A tolerance that holds other tokens, too, or is less than rounding may do."""
    tolerance = (0.3, 1.0, 2.0, 10.0, 1e-12, 1e-8)[seed % 6]
    ask = ("auto", "sampled")[seed // 4 % 2]
    return replace_clean(
        attack("a wide tolerance", seed, kind, site, way, tolerance=tolerance, ask=ask)
    )


def replace_clean(drawn: Attack) -> Attack:
    """Nothing need come back of it."""
    drawn.clean = False
    return drawn


def outputs_of(
    lens: Lens, cutting: Callable[[Lens], SlicedModel], ids: list[list[int]]
) -> list[Tensor]:
    """Return the outputs of a slice in float32."""
    return [cutting(lens).run([row])[0].float() for row in ids]


def of_the_whole(
    name: str,
    seed: int,
    lens: Lens,
    way: str,
    cutting: Callable[[Lens], SlicedModel],
    length: int,
    **options: object,
) -> Attack:
    """Prompts so short that all of their length are run to judge what a search of the whole says;
    some outputs are hurt.
    """
    ids = prompts(lens, seed, length=length)
    states = outputs_of(lens, cutting, ids)
    truth: list[list[int] | None] = list(ids)
    if seed % 2:
        states[0] = states[0] + 1e-2 * states[0].std() * noise(seed, states[0])
        states[1] = states[1].flip(-1)
        truth[:2] = [None, None]
    return Attack(name, lens, "", states, truth, way=way, cutting=cutting, length=length, **options)  # type: ignore[arg-type]


@family("tokens without an output")
def hidden(seed: int, kind: str, site: str, way: str) -> Attack:
    """The last position's output alone, of two tokens, or the outputs from the second on; two
    tokens share a vector.
    """
    lens = fresh(kind, seed, (50, 120))
    table = lens.model.get_input_embeddings().weight.data
    table[3] = table[5] * (1 + 10.0 ** -(4 + seed % 5))

    def last(model: Lens) -> SlicedModel:
        return Slice(sites=(f"block.{model.depth - 1}",), tokens=("-1", "1:")[seed % 2]).on(model)

    way = "joint" if way == "sequential" else way
    return of_the_whole("tokens without an output", seed, lens, way, last, 2)


@family("an encoder")
def encoder(seed: int, kind: str, site: str, way: str) -> Attack:
    """All outputs of a model without a causal mask."""
    lens = fresh("bert", seed, (50, 120))
    site = f"block.{lens.depth - 1}" if site == "block.-1" else "block.0"
    way = list(OTHERS)[seed % 3] if way in ORDERS or way == "sequential" else way
    return of_the_whole(
        "an encoder", seed, lens, way, lambda model: Slice(sites=(site,)).on(model), 1 + seed % 2
    )


@family("a pooled vector")
def pooled(seed: int, kind: str, site: str, way: str) -> Attack:
    """The mean of all outputs, of unit length or not: the order of the tokens is nearly
    lost in it.
    """
    lens = fresh((kind, "bert")[seed % 2], seed, (50, 120))
    way = "joint" if way in ORDERS or way == "sequential" else way
    mean = EmbeddingSlice if seed % 3 else Slice(pool="mean").on
    return of_the_whole("a pooled vector", seed, lens, way, mean, 2)


@family("the next token's distribution")
def distribution(seed: int, kind: str, site: str, way: str) -> Attack:
    """Log-probabilities after one token or two."""
    lens = fresh(kind, seed, (50, 120))
    way = "joint" if way in ORDERS or way == "sequential" else way
    lens.model.get_input_embeddings().weight.data[7:14] = (
        lens.model.get_input_embeddings().weight.data[:7]
    )
    return of_the_whole(
        "the next token's distribution", seed, lens, way, NextTokenSlice, 1 + seed % 2
    )


@family("noise that nobody knows")
def unknown(seed: int, kind: str, site: str, way: str) -> Attack:
    """States that leaked: rounded, through noise of 1e-4 to 1, or another model's."""
    lens = fresh(kind, seed)
    ids = prompts(lens, seed)
    states = outputs(lens, site, ids)
    states = [
        state
        + 10.0 ** -((seed + number) % 5)
        * state.norm()
        / state.numel() ** 0.5
        * noise(seed + number, state)
        for number, state in enumerate(states)
    ]
    if seed % 3 == 2:
        states = outputs(
            fresh(kind, seed),
            site,
            [[(token + 1) % 50 for token in row] for row in ids],
            torch.bfloat16,
        )
        states = [state.roll(1, -1) for state in states]
        lens.model.float()
    return Attack(
        "noise that nobody knows", lens, site, states, [None] * len(ids), way=way, unknown=True
    )


def attacks(count: int) -> Iterator[Attack]:
    """`count` inversions, four an attack, all families in turn over kinds, sites and ways to
    search.

    Every other attack that names no tolerance is given one between 1e-12 and 10: then nothing need
    come back of it.
    """
    settings = list(product(SITES, [*ORDERS, *OTHERS], KINDS))

    def endless() -> Iterator[Attack]:
        for seed in numbers():
            for number, make in enumerate(FAMILIES.values()):
                site, way, kind = settings[(5 * seed + 7 * number) % len(settings)]
                drawn = make(seed, kind, site, way)
                draw = random.Random(1000 * seed + number)
                if drawn.tolerance is None and (seed + number) % 2:
                    drawn.tolerance = 10.0 ** draw.uniform(-12, 1)
                    drawn.clean = False
                yield drawn

    yield from islice(endless(), (count + 3) // 4)
