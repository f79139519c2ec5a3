"""InfoNCE against its definition, and retrieval that learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscan import BadInput
from headscan.training import infonce_loss


def test_value_is_the_definition():
    generator = torch.Generator().manual_seed(0)
    queries, candidates = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (3, 7))
    want = []
    for i, query in enumerate(queries):
        cosines = [float(query @ c / query.norm() / c.norm()) / 0.1 for c in candidates]
        want.append(np.log(np.sum(np.exp(cosines))) - cosines[2 + i])
    assert infonce_loss(queries, candidates, temperature=0.1, first=2).item() == pytest.approx(np.mean(want))
    one = infonce_loss(queries, candidates[:3], temperature=0.1)
    other = infonce_loss(candidates[:3], queries, temperature=0.1)
    both = infonce_loss(queries, candidates[:3], temperature=0.1, both_ways=True)
    assert both.item() == pytest.approx((one + other).item() / 2)


def test_bad_input():
    two, three = torch.zeros(2, 4), torch.zeros(3, 4)
    for arguments, options in (((two, three[:, :2]), {}), ((three, two), {}), ((two, two), {"temperature": 0})):
        with pytest.raises(BadInput):
            infonce_loss(*arguments, **options)
    with pytest.raises(BadInput, match="as many"):
        infonce_loss(two, three, both_ways=True)
