"""The hook layer: reading and writing states, and a live model that is left as it was."""

from contextlib import ExitStack

import pytest
import torch
from torch import nn

from headscan.attribution import Engine, attribute
from headscan.attribution.packed import Segment
from headscan.model import Lens
from headscan.model.partwise import PartwiseModel
from headscan.model.recording import (
    after_call,
    before_call,
    patched,
    replaced_forward,
    with_first_tensor,
)
from headscan.model.sites import Tap
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.model.tiny import family, gpt2, hooks, ids, llama


class Faulty(Exception):
    """What these tests raise in the middle of a pass."""


def fail(*_args, **_kwargs):
    raise Faulty


class Doubling(nn.Module):
    """Returns twice its states, alone or first of a tuple or list."""

    def __init__(self, form=None):
        super().__init__()
        self.form = form

    def forward(self, hidden_states, scale=2.0):
        doubled = scale * hidden_states
        return doubled if self.form is None else self.form([doubled, "cache"])


class Passing(nn.Module):
    """Calls a module, with its states as a keyword argument or not."""

    def __init__(self, inner, by_keyword=False):
        super().__init__()
        self.inner = inner
        self.by_keyword = by_keyword

    def forward(self, states):
        return self.inner(hidden_states=states) if self.by_keyword else self.inner(states)


def tap(model, where):
    return Tap("block.0", model.inner, "inner", where, 2, clock=model)


def test_functions_see_arguments_and_may_change_them():
    model = Passing(Doubling(), by_keyword=True)
    seen = []

    def note(module, args, kwargs):
        seen.append((module, args, sorted(kwargs)))
        return args, {"hidden_states": kwargs["hidden_states"] + 1}

    def halve(module, args, kwargs, output):
        return output / 2

    with before_call(model.inner, note), after_call(model.inner, halve):
        assert model(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert seen == [(model.inner, (), ["hidden_states"])]
    assert model(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert hooks(model) == 0


def test_a_module_that_is_given_twice_is_hooked_once():
    layer = Doubling()
    calls = []
    with (
        before_call([layer, layer], lambda *_: calls.append("before")),
        after_call([layer, layer], lambda *_: calls.append("after")),
    ):
        layer(torch.ones(2))
    assert calls == ["before", "after"]


def test_first_comes_before_hooks_that_were_there():
    layer = Doubling()
    order = []
    with ExitStack() as contexts:
        for name, first in (("a", False), ("b", False), ("c", True)):
            contexts.enter_context(
                before_call(layer, lambda *_, name=name: order.append(name), first=first)
            )
            contexts.enter_context(
                after_call(layer, lambda *_, name=name: order.append(name), first=first)
            )
        layer(torch.ones(2))
    assert order == ["c", "a", "b"] * 2


@pytest.mark.parametrize("context", [before_call, after_call])
def test_hooks_go_with_an_exception_and_with_a_module_that_cannot_be_hooked(context):
    layer = Doubling()
    with pytest.raises(Faulty), context(layer, fail):
        layer(torch.ones(2))
    with pytest.raises(AttributeError), context([layer, "no module"], fail):
        pass
    assert hooks(layer) == 0


def test_the_first_tensor_is_replaced_in_every_form_of_output():
    old, new = torch.zeros(1), torch.ones(1)
    assert with_first_tensor(old, new) is new
    assert with_first_tensor((old, "cache", old), new) == (new, "cache", old)
    assert with_first_tensor([old, None], new) == [new, None]
    with pytest.raises(TypeError, match="returned dict"):
        with_first_tensor({"states": old}, new)


@pytest.mark.parametrize("form", [None, tuple, list])
def test_a_patch_on_an_output_writes_it_whatever_its_form(form):
    model = Passing(Doubling(form))
    with patched(tap(model, "output"), lambda states: states + 1):
        output = model(torch.ones(1, 2))
    states = output if form is None else output[0]
    assert states.tolist() == [[3.0, 3.0]]
    assert form is None or (type(output) is form and output[1] == "cache")


@pytest.mark.parametrize("by_keyword", [False, True])
def test_a_patch_on_an_input_writes_it_whether_positional_or_not(by_keyword):
    model = Passing(Doubling(), by_keyword)
    with patched(tap(model, "input"), lambda states: states + 1):
        assert model(torch.ones(1, 2)).tolist() == [[4.0, 4.0]]
    assert model(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]


def test_a_patch_must_leave_the_shape():
    model = Passing(Doubling())
    with (
        patched(tap(model, "output"), lambda states: states[:, :1]),
        pytest.raises(ValueError, match=r"have the shape \[1, 1\], not \[1, 2\]"),
    ):
        model(torch.ones(1, 2))


def test_a_forward_of_its_own_comes_back():
    """As accelerate sets one on the modules that it moves between devices."""
    layer = Doubling()
    with pytest.raises(Faulty), replaced_forward(layer, fail):
        layer(torch.ones(2))
    assert "forward" not in vars(layer)
    own = lambda states: states  # noqa: E731 (an object to be found again)
    layer.forward = own
    with replaced_forward(layer, lambda states: -states):
        assert layer(torch.ones(2)).tolist() == [-1.0, -1.0]
    assert vars(layer)["forward"] is own


def test_the_model_goes_on_with_patched_states():
    """Adding 1 to what a block returns is adding 1 to what the next one gets."""
    lens = Lens(gpt2())
    plain = lens.run(ids(), sites="**")
    with lens.patch({"block.1": lambda states: states + 1}):
        patched_states = lens.run(ids(), sites="**")
    body = lens.model.transformer
    with torch.no_grad():
        expected = body.h[2](plain["block.1"] + 1)
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert torch.equal(patched_states["block.0"], plain["block.0"])
    assert torch.equal(patched_states["block.1"], plain["block.1"] + 1)
    torch.testing.assert_close(patched_states["block.2"], expected)
    assert torch.equal(lens.run(ids(), sites="head")["head"], plain["head"])


@pytest.mark.parametrize(
    "name",
    [
        "GPT-2",
        "OPT",
        "ALBERT (one shared block)",
        "RWKV (stream halved every 2 blocks)",
        "Falcon (sequential)",
        "Falcon (parallel)",
        "BLOOM",
        "T5 (both stacks)",
    ],
)
def test_every_site_but_the_head_can_be_written(name):
    """Among them inputs, branches in tuples, flattened states, and calls of one shared module."""
    lens = Lens(family(name))
    plain = {site: states.clone() for site, states in lens.run(ids(), sites="**").items()}
    for number, site in enumerate(lens.sites[:-1] if "head" in lens.sites else lens.sites):
        with lens.patch({site: torch.zeros_like}):
            states = {at: found.clone() for at, found in lens.run(ids(), sites="**").items()}
        assert not states[site].any(), site
        for earlier in lens.sites[:number]:
            assert torch.equal(states[earlier], plain[earlier]), (site, earlier)
    assert hooks(lens.model) == 0


def test_recorders_see_patched_states_whether_they_come_before_or_after():
    lens = Lens(llama())
    seen = []

    def note(site, states):
        seen.append(float(states.abs().max()))

    with (
        torch.no_grad(),
        lens.watch("block.1", note),
        lens.patch({"block.1": torch.zeros_like}),
        lens.watch("block.1", note),
    ):
        lens.model(input_ids=ids())
    assert seen == [0.0, 0.0]


def test_of_two_patches_at_a_site_the_last_gets_the_models_own_states():
    lens = Lens(gpt2())
    with (
        lens.patch({"block.0": lambda states: 2 * states}),
        lens.patch({"block.0": torch.ones_like}),
    ):
        assert (lens.run(ids(), sites="block.0")["block.0"] == 2).all()


def test_gradients_pass_through_a_patch():
    lens = Lens(gpt2())
    move = torch.zeros(16, requires_grad=True)
    with lens.patch({"block.1": lambda states: states + move}):
        lens.run(ids(), sites="block.3", grad=True)["block.3"].square().sum().backward()
    assert move.grad is not None
    assert bool(move.grad.abs().sum() > 0)


@pytest.mark.parametrize("site", ["head", "block.9"])
def test_a_site_that_cannot_be_written_is_refused_in_a_sentence(site):
    lens = Lens(gpt2())
    with pytest.raises(BadInput, match=site), lens.patch({"block.0": fail, site: fail}):
        pass
    assert hooks(lens.model) == 0


def run_lens(lens, broken):
    lens.run(ids(), sites="**", each=fail if broken else lambda site, states: None)


def run_patch(lens, broken):
    with lens.patch({"embedding": fail if broken else torch.zeros_like}):
        lens.run(ids(), sites="**")


def run_slice(lens, broken):
    cut = Slice(sites=("block.2",), residual=False, normalisation=False, only="mlp").on(lens)
    with lens.patch({"block.1": fail if broken else torch.ones_like}):
        cut.run(ids())


def run_packed(lens, broken):
    engine = Engine(lens)
    embeds = engine.embed(ids(1, 8))[0]
    engine.share(embeds)
    assert engine.packs
    with lens.patch({"block.1": fail if broken else torch.ones_like}):
        engine.each([Segment(embeds[None, 4:], 4, (7,))])


def run_map(lens, broken):
    with lens.patch({"block.1": fail} if broken else {}):
        attribute(lens, ids(1, 8)[0], method="combined", substitute="mean")


def run_parts(lens, broken):
    parts = PartwiseModel(lens, rounding="q8_0")
    states = lens.run(ids(), sites="embedding")["embedding"]
    with parts.ready("block.1"):
        parts.block(1, states)
        with lens.patch({"embedding": fail if broken else torch.zeros_like}):
            parts.logits(states)


def run_random_weights(lens, broken):
    control = lens.random_init(3)
    run_lens(control, broken)


def state_of(model):
    """What a user of a live model would find changed."""
    return {
        "hooks": hooks(model),
        "modes": [module.training for module in model.modules()],
        "gradients": [weight.requires_grad for weight in model.parameters()],
        "precisions": [weight.dtype for weight in model.parameters()],
        "weights": [weight.data_ptr() for weight in model.parameters()],
        "forwards": [vars(module).get("forward") for module in model.modules()],
        "attention": model.config._attn_implementation,
        "threads": torch.get_num_threads(),
        "gradients on": torch.is_grad_enabled(),
        "default precision": torch.get_default_dtype(),
    }


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(
    "work",
    [run_lens, run_patch, run_slice, run_packed, run_map, run_parts, run_random_weights],
)
def test_a_live_model_is_left_as_it_was(work, broken):
    model = gpt2(activation_function="gelu_new").train()
    model.transformer.h[1].eval()
    model.transformer.wpe.weight.requires_grad_(False)
    before = state_of(model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    lens = Lens(model)
    if broken:
        with pytest.raises(Faulty):
            work(lens, broken)
    else:
        work(lens, broken)
    assert state_of(model) == before
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_random_weights_leave_the_random_states_of_gpus_alone(monkeypatch):
    """`torch.manual_seed` would set them, and nothing would put them back."""
    lens = Lens(gpt2())
    monkeypatch.setattr(torch.cuda, "manual_seed_all", fail)
    assert lens.random_init(3).sites == lens.sites
