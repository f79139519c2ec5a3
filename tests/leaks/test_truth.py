"""The bounds on a real language model of 105 characters: all prompts of length 2 and 3, enumerated.

babyllama-tok105 of the assets; where that folder is absent, a model of ours of the same vocabulary
with random weights.
"""

import math
import warnings

import pytest
import torch

from headscan.leaks.bounds import Code, draws_of, leak_bounds, pairwise_curve
from headscan.leaks.priors import prior_of
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import Prefix
from headscan.statistics.information import entropy_bits
from tests.inversion.conftest import build

SIZE = 105
START = 1


@pytest.fixture(scope="module")
def lens(asset_folder):
    if (asset_folder / "models" / "babyllama-tok105").is_dir():
        return Lens.load(str(asset_folder / "models" / "babyllama-tok105"))
    warnings.warn(
        "babyllama-tok105 is absent: the bounds are held against random weights instead",
        stacklevel=1,
    )
    return build("llama", vocabulary=SIZE, width=32, depth=2)


@pytest.fixture(scope="module")
def cut(lens):
    return Slice(sites=("block.1",)).on(lens)


@pytest.fixture(scope="module")
def pairs(lens, cut):
    """States [V, d] of the first token and [V, V, d] of the second, and the model's prior [V, V],
    after one known token.
    """
    every = torch.arange(SIZE)
    start = torch.tensor([[START]])
    ids = torch.cat([start.expand(SIZE, -1), every[:, None]], 1)
    prior = prior_of("model", lens, [])
    joint = prior(start)[0, 0][:, None] * prior(ids)[:, 1]
    prefix = Prefix(cut, ids)
    rows = every.repeat_interleave(SIZE)
    second = prefix.evaluate(rows, every.repeat(SIZE)).unflatten(0, (SIZE, SIZE))
    return cut.run(ids)[:, 1].double(), second.double(), joint


def likely(points, prior, most):
    """The likeliest prompts as a code, the others kept apart: the bounds hold for all of them."""
    order = prior.argsort(descending=True)
    return Code(points[order[:most]], prior[order[:most]], prior[order[most:]])


@pytest.mark.parametrize("prior", ["model", "uniform"])
def test_all_prompts_of_two_tokens_hold_the_bounds(pairs, prior):
    """105² prompts by their last state: rows drawn from all of them, truth by the exact posterior
    over all of them.
    """
    _, second, joint = pairs
    masses = (
        joint.flatten()
        if prior == "model"
        else torch.full((SIZE**2,), SIZE**-2.0, dtype=torch.float64)
    )
    code = Code(second.flatten(0, 1), masses)
    rms = math.sqrt(float(torch.as_tensor(code.variances).mean()))
    sigmas = [rms * nsr for nsr in (0.2, 0.8, 3.2)]
    rows = torch.multinomial(
        code.prior, 200, replacement=True, generator=torch.Generator().manual_seed(1)
    )
    curve = pairwise_curve(
        code, [scale for sigma in sigmas for scale in (2 * sigma, sigma)], rows=rows
    )
    for k, draws in enumerate(draws_of(code, sigmas, draws=200)):
        truth = float(draws.bits.mean())
        error = float(draws.bits.std()) / 200**0.5
        low = curve[2 * k]
        high = curve[2 * k + 1]
        assert float(low.mean()) - 4 * float(low.std()) / 200**0.5 <= truth + 4 * error
        assert truth - 4 * error <= float(high.mean()) + 4 * float(high.std()) / 200**0.5
    for bound, truth in zip(
        leak_bounds(likely(second.flatten(0, 1), masses, 512), sigmas),
        draws_of(code, sigmas),
        strict=True,
    ):
        assert bound.lower <= truth.mean + 4 * truth.error
        assert truth.mean - 4 * truth.error <= bound.upper
        assert truth.accuracy <= bound.accuracy_upper + 0.15


def test_all_prompts_of_three_tokens_hold_the_bounds(lens, pairs):
    """All prompts of three of the 22 likeliest characters, by their last state, to one who knows
    that there are no others.

    `benchmarks/bits_lie_between_their_bounds_in_a_thousand_cells.py` enumerates all 105³.
    """
    cut, (_, _, joint) = Slice(sites=("block.0",)).on(lens), pairs
    few = joint.sum(0).argsort(descending=True)[:22]
    two = torch.cartesian_prod(few, few)
    ids = torch.cat([torch.full((len(two), 1), START), two], 1)
    after = prior_of("model", lens, [])(ids)[:, 2, few]
    masses = (joint[two[:, 0], two[:, 1], None] * after).flatten()
    states = Prefix(cut, ids).evaluate(
        torch.arange(len(two)).repeat_interleave(22), few.repeat(len(two))
    )
    for prior in (masses / masses.sum(), torch.full_like(masses, 22**-3.0)):
        code = Code(states, prior)
        rms = math.sqrt(float(torch.as_tensor(code.variances).mean()))
        sigmas = [0.4 * rms, 1.6 * rms]
        rows = torch.multinomial(
            code.prior, 128, replacement=True, generator=torch.Generator().manual_seed(2)
        )
        curve = pairwise_curve(
            code, [scale for sigma in sigmas for scale in (2 * sigma, sigma)], rows=rows
        )
        for k, draws in enumerate(draws_of(code, sigmas, draws=128, all_rows=False)):
            truth = float(draws.bits.mean())
            error = float(draws.bits.std()) / 128**0.5
            low = curve[2 * k]
            high = curve[2 * k + 1]
            assert float(low.mean()) - 4 * float(low.std()) / 128**0.5 <= truth + 4 * error
            assert truth - 4 * error <= float(high.mean()) + 4 * float(high.std()) / 128**0.5


def test_the_chain_rule_token_by_token_brackets_the_whole(lens, cut, pairs):
    """Σ A_t ≤ I(X; Y) ≤ Σ B_t + I(X_1; X_2), terms under the true prefix, in the mean over all
    prefixes.
    """
    first, second, joint = pairs
    sigma = 0.8 * float(second.flatten(0, 1).var(0).mean().sqrt())
    p1 = joint.sum(1)
    p2 = joint / joint.sum(1, keepdim=True)
    whole = Code(
        torch.cat([first[:, None].expand(-1, SIZE, -1), second], -1).flatten(0, 1), joint.flatten()
    )
    (truth,) = draws_of(whole, [sigma], draws=200)
    drawn = torch.multinomial(
        p1, 24, replacement=True, generator=torch.Generator().manual_seed(0)
    ).tolist()
    a1 = draws_of(Code(first, p1), [sigma], draws=400)[0]
    a2 = [draws_of(Code(second[i], p2[i]), [sigma], draws=32, seed=i)[0].mean for i in drawn]
    after = joint.sum(0)
    later = torch.multinomial(
        after, 24, replacement=True, generator=torch.Generator().manual_seed(1)
    ).tolist()
    b1 = [
        draws_of(
            Code(torch.cat([first, second[:, j]], 1), joint[:, j] / after[j]),
            [sigma],
            draws=32,
            seed=j,
        )[0].mean
        for j in later
    ]
    shared = (
        entropy_bits(p1.numpy())
        + entropy_bits(after.numpy())
        - entropy_bits(joint.flatten().numpy())
    )
    spread = [torch.tensor(values).std() / 24**0.5 for values in (a2, b1)]
    slack = (
        4 * (truth.error**2 + a1.error**2 + float(spread[0]) ** 2 + float(spread[1]) ** 2) ** 0.5
    )
    mean = sum(a2) / 24
    assert a1.mean + mean <= truth.mean + slack
    assert truth.mean <= sum(b1) / 24 + mean + shared + slack  # B_2 = A_2: no token comes after it
