"""Bits to one who knows all other tokens, against enumeration by hand; the offset of a cache."""

from __future__ import annotations

import math

import pytest
import torch

from headscan.inversion import exact
from headscan.leaks import cache_slice, read_format
from headscan.leaks.blind import find_offset
from headscan.leaks.bounds import Code, leak_bounds
from headscan.leaks.positions import Asked, position_leaks, prior_of
from headscan.leaks.sequence import leave_one_out_leaks
from headscan.model.slicing import Slice
from headscan.statistics.information import entropy_bits
from tests.leaks.test_privacy import lens

__all__ = ["lens"]


def test_others_known_is_the_code_of_all_later_releases_under_the_prior_given_them(lens):
    cut, prior, ids = Slice(sites=("block.1",)).on(lens), prior_of("model", lens, []), torch.tensor([10, 20, 30, 40])
    asked = Asked((cut.width,), ((0.5,),), prior, None, 16, 0)
    own = position_leaks(cut, ids, asked)
    second, last = leave_one_out_leaks(cut, ids, asked, [1, 3], joined=True)
    assert (last.lower, last.upper, last.entropy) == pytest.approx(
        (own[-1].lower, own[-1].upper, own[-1].entropy), abs=1e-5
    )
    rows = ids.repeat(256, 1)
    rows[:, 1] = torch.arange(256)
    logits = lens.run(rows, sites="head")["head"].double().log_softmax(-1)
    joint = sum(logits[torch.arange(256), place, rows[:, place + 1]] for place in range(3)).softmax(0)
    assert second.entropy == pytest.approx(entropy_bits(joint.numpy()), abs=1e-4)
    (bound,) = leak_bounds(Code(cut.run(rows)[:, 1:].flatten(1), joint), [0.5])
    assert (second.lower, second.upper) == pytest.approx((bound.lower, bound.upper), abs=1e-4)
    assert second.upper <= second.entropy + 1e-9
    assert math.isfinite(second.truth)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_offset_of_a_cache_is_found_with_its_first_token(kind, request, ids):
    """Of rotary keys by their lengths, of learned positions by running all; values of rotary models do not tell it."""
    lens, form = request.getfixturevalue(kind), read_format("int8")
    there, base = cache_slice(lens, [1], "keys", [0], offset=13), cache_slice(lens, [1], "keys", [0])
    leaked = there.run(ids[:1])[0]
    for seen, rounded in ((leaked[0], None), (form(leaked[0]), form)):
        found = find_offset(base, seen, form=rounded, offsets=20)
        assert (found.offset, found.token, found.told) == (13, int(ids[0, 0]), True)
    assert exact(there, [leaked])[0].tokens == ids[0].tolist()
    values = cache_slice(lens, [1], "values")
    seen = cache_slice(lens, [1], "values", offset=13).run(ids[:1])[0, 0]
    assert find_offset(values, seen, offsets=20).told is (kind == "gpt2")
