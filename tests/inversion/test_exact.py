"""Exact inversion: every token, whatever the family, the slice and the precision."""

import pytest
import torch

from headscan.inversion.left_to_right import Search, exact
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.run import BadInput
from tests.inversion.conftest import build
from tests.reference.inversion import brute_force


def tokens_of(inversions):
    return torch.tensor([inversion.tokens for inversion in inversions])


@pytest.mark.parametrize("name", ["gpt2", "llama", "rwkv"])
def test_every_token_is_found_and_brute_force_agrees(name, ids, request):
    lens = request.getfixturevalue(name)
    for site in lens.match("block.*"):
        cut = Slice(sites=(site,)).on(lens)
        target = cut.run(ids)
        inversions = exact(cut, list(target))
        assert torch.equal(tokens_of(inversions), ids)
        assert brute_force(cut.run, target[0], 120) == inversions[0].tokens
        assert max(residual for inversion in inversions for residual in inversion.residuals) < 1e-5
        assert not any(inversion.failed or any(inversion.rivals) for inversion in inversions)


@pytest.mark.parametrize(
    "options",
    [
        {"only": "attention"},
        {"only": "mlp"},
        {"residual": False},
        {"normalisation": False},
        {"weights": "fresh:3"},
        {"features": "2:7"},
        {"sites": ("block.1", "block.0")},
    ],
)
def test_any_causal_slice_can_be_inverted(gpt2, ids, options):
    cut = Slice(**options).on(gpt2)
    assert torch.equal(tokens_of(exact(cut, list(cut.run(ids)))), ids)


@pytest.mark.parametrize("order", ["auto", "table", "readout", "random"])
def test_every_order_ends_at_the_same_tokens(llama, ids, order):
    cut = Slice(sites=("block.1",)).on(llama)
    inversions = exact(cut, list(cut.run(ids)), Search(order=order))
    assert torch.equal(tokens_of(inversions), ids)


def test_prompts_of_different_lengths_go_together(gpt2, ids):
    cut = Slice().on(gpt2)
    rows = [ids[0, :2], ids[1], ids[2, :4]]
    inversions = exact(cut, [cut.run(row[None])[0] for row in rows])
    assert [inversion.tokens for inversion in inversions] == [row.tolist() for row in rows]


def test_known_tokens_come_first(gpt2, ids):
    cut = Slice().on(gpt2)
    inversions = exact(cut, list(cut.run(ids)[:, 2:]), known=ids[:, :2])
    assert torch.equal(tokens_of(inversions), ids[:, 2:])


def test_a_restricted_vocabulary_is_never_left(gpt2, ids):
    cut = Slice().on(gpt2)
    allowed = torch.zeros(120, dtype=torch.bool)
    allowed[ids.unique()] = True
    assert torch.equal(tokens_of(exact(cut, list(cut.run(ids)), allowed=allowed)), ids)
    allowed[ids[0, 0]] = False
    inversions = exact(cut, list(cut.run(ids)), allowed=allowed)
    assert all(allowed[token] for inversion in inversions for token in inversion.tokens)
    assert 0 in inversions[0].failed


def test_a_wrong_prefix_is_taken_back():
    """Two tokens that their own output cannot tell apart, but the outputs after them can."""
    lens = build("gpt2", vocabulary=40, width=16, depth=1, seed=3)
    lens.model.double()
    cut = Slice(features=":1").on(lens)
    table = lens.model.transformer.wte.weight.data

    def value_of(vector):
        return cut.run(inputs_embeds=vector[None, None], grad=True)[0, 0, 0]

    goal = value_of(table[7].clone())
    vector = table[7] + 0.02 * torch.randn(
        16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    for _ in range(30):  # Newton along the gradient, until the one feature seen is equal
        vector = vector.detach().requires_grad_()
        (slope,) = torch.autograd.grad(value_of(vector), vector)
        vector = vector - (value_of(vector) - goal) * slope / (slope @ slope)
    table[11] = vector.detach()
    cut.__dict__.pop("vectors", None)
    rows = torch.tensor([[11, 5, 30, 3], [7, 5, 30, 3]])
    inversions = exact(cut, list(cut.run(rows)), Search(neighbours=40), tolerance=1e-6)
    assert torch.equal(tokens_of(inversions), rows)
    assert max(inversion.backtracks for inversion in inversions) == 1
    assert not any(inversion.failed for inversion in inversions)


def test_nearly_equal_tokens_are_told_apart():
    lens = build("llama", seed=2)
    table = lens.model.model.embed_tokens.weight.data
    table[20:60] = table[20] + 2e-6 * torch.randn(
        40, 32, generator=torch.Generator().manual_seed(0)
    )
    rows = torch.tensor([[20, 33, 59], [41, 42, 55]])
    cut = Slice().on(lens)
    assert torch.equal(tokens_of(exact(cut, list(cut.run(rows)))), rows)


def test_equal_embedding_rows_are_rivals(ids):
    lens = build("gpt2", seed=1)
    lens.model.transformer.wte.weight.data[9] = lens.model.transformer.wte.weight.data[4]
    cut = Slice().on(lens)
    inversion = exact(cut, list(cut.run(torch.tensor([[3, 9, 8]]))))[0]
    assert {inversion.tokens[1], *inversion.rivals[1]} == {4, 9}
    assert not inversion.rivals[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_have_their_own_tolerance(ids, dtype):
    lens = build("llama")
    lens.model.to(dtype)
    cut = Slice(sites=("block.1",)).on(lens)
    inversions = exact(cut, list(cut.run(ids)))
    assert torch.equal(tokens_of(inversions), ids)


def test_a_budget_ends_the_search_and_says_so(gpt2, ids):
    cut = Slice().on(gpt2)
    inversions = exact(cut, list(cut.run(ids)), Search(order="random", budget=5, backtracks=0))
    assert any(inversion.failed for inversion in inversions)
    assert all(count <= 5 for inversion in inversions for count in inversion.evaluations)
    assert not all(inversion.exhausted for inversion in inversions)


def test_a_cached_step_equals_the_whole_pass(llama, ids):
    cut = Slice(sites=("block.1",)).on(llama)
    assert can_cache(cut)
    rows = torch.tensor([2, 0, 2, 3])
    new = torch.tensor([5, 6, 7, 8])
    prefix = Prefix(cut, ids[:, :4])
    continued = torch.cat([ids[rows, :4], new[:, None]], dim=1)
    expected = cut.states(continued)[:, -1]
    torch.testing.assert_close(prefix.evaluate(rows, new), expected, atol=1e-5, rtol=1e-4)
    prefix.keep(torch.tensor([3, 1]))
    prefix.extend(ids[[3, 1], 4:5])
    continued = torch.cat([ids[[3, 1], :5], new[:2, None]], dim=1)
    expected = cut.states(continued)[:, -1]
    torch.testing.assert_close(
        prefix.evaluate(torch.tensor([0, 1]), new[:2]), expected, atol=1e-5, rtol=1e-4
    )


def test_models_without_a_cache_do_without(rwkv):
    assert not can_cache(Slice().on(rwkv))


def test_memory_running_out_halves_the_batches():
    cut = Slice().on(Lens.load("gpt-vanilla-early"))
    sizes = []

    def run(part):
        sizes.append(part.stop - part.start)
        if sizes[-1] > 2:
            raise RuntimeError("CUDA out of memory")
        return torch.arange(part.start, part.stop)

    assert cut.in_batches(run, 7, 8).tolist() == list(range(7))
    assert sizes == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    assert "passes have 1 row at most" in cut.lens.limit.notes[0]

    def fail(_part):
        raise RuntimeError("another fault")

    with pytest.raises(RuntimeError, match="another fault"):
        cut.in_batches(fail, 3, 4)


def test_a_slice_that_sees_the_future_is_refused(bert, ids):
    cut = Slice().on(bert)
    with pytest.raises(BadInput, match="causal"):
        exact(cut, list(cut.run(ids)))
    with pytest.raises(BadInput, match="order must be"):
        Search(order="alphabet")


def test_real_models_give_back_real_text(assets):
    from headscan.model import Lens

    text = (assets / "text/tinystories/tinystories_2MiB.txt").read_text(encoding="utf-8")[5000:7000]
    for name in ("stories260K", "babyllama-tok105"):
        lens = Lens.load(str(assets / "models" / name))
        rows = torch.tensor(
            lens.tokenizer(text.replace("\n", " "), add_special_tokens=False)["input_ids"][:64]
        )
        cut = Slice(sites=("block.4",)).on(lens)
        inversions = exact(cut, list(cut.run(rows.reshape(4, 16))))
        assert torch.equal(tokens_of(inversions), rows.reshape(4, 16))
        assert all(count <= 600 for inversion in inversions for count in inversion.evaluations)
