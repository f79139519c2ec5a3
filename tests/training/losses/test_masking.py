"""80/10/10 is 80/10/10."""

import pytest
import torch

from headscan import BadInput
from headscan.training import mask_tokens

SIZE = 1000
MASK = 1000


def _masked(special=None):
    ids = torch.randint(SIZE, (400, 500), generator=torch.Generator().manual_seed(0))
    masked_ids, labels = mask_tokens(
        ids,
        mask_id=MASK,
        vocabulary=SIZE,
        special=special,
        generator=torch.Generator().manual_seed(1),
    )
    return ids, masked_ids, labels != -100, labels


def _share(values, among):
    return values[among].float().mean().item()


def test_bert_masking_has_its_shares():
    ids, masked_ids, selected, labels = _masked()
    assert selected.float().mean().item() == pytest.approx(0.15, abs=0.005)
    assert _share(masked_ids == MASK, selected) == pytest.approx(0.80, abs=0.01)
    assert _share(masked_ids == ids, selected) == pytest.approx(0.10, abs=0.01)
    assert torch.equal(masked_ids[~selected], ids[~selected])
    assert torch.equal(labels[selected], ids[selected])


def test_special_tokens_are_never_chosen():
    special = torch.zeros(400, 500, dtype=torch.bool)
    special[:, ::2] = True
    _, _, selected, _ = _masked(special)
    assert not selected[special].any()


@pytest.mark.parametrize("options", [{"share": 0.0}, {"share": 1.0}])
def test_bad_options(options):
    with pytest.raises(BadInput):
        mask_tokens(torch.zeros(1, 4, dtype=torch.long), mask_id=1, vocabulary=3, **options)
