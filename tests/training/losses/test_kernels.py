"""Fused kernels of libraries give the plain loss and its gradients; Triton's own interpreter runs them where no card is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from headscan import BadInput
from headscan.training import available_kernels, ce_loss, cwt_loss

HOMES = {"liger": "liger_kernel", "cce": "cut_cross_entropy"}
CHECK = """
import sys, torch
from headscan.training import available_kernels, ce_loss, cwt_loss
form = sys.argv[1]
if form == "cce":  # the interpreter knows no libdevice, of which this kernel takes log1p
    import triton, triton.language as tl
    from cut_cross_entropy import tl_utils

    def log1p(x):
        return tl.log(1.0 + x)

    tl_utils.tl_log1p = triton.jit(log1p)
assert form in available_kernels(), available_kernels()
torch.manual_seed(0)
hidden, table, bias = torch.randn(24, 48), torch.randn(37, 48), torch.randn(37)
near = {"rtol": 2e-5, "atol": 2e-5}
if form == "cce":
    hidden, table, bias = hidden.half(), table.half(), bias.half()
    near = {"rtol": 1e-2, "atol": 1e-2}  # fp16 has eleven bits
hidden.requires_grad_(), table.requires_grad_()
targets = torch.randint(37, (24,)) // 3
for loss, given in ((ce_loss, {"bias": bias}), (ce_loss, {}), (cwt_loss, {})):
    for reduction in ("mean", "sum"):
        pairs = []
        for name in (form, "chunked"):
            value = loss(hidden, table, targets, name, reduction=reduction, **given)
            pairs.append([value.detach(), *torch.autograd.grad(value, (hidden, table))])
        for one, other in zip(*pairs):
            torch.testing.assert_close(one.float(), other.float(), **near)
"""


@pytest.mark.parametrize("form", HOMES)
def test_a_librarys_kernel_equals_the_chunked_form(form, tmp_path):
    if find_spec(HOMES[form]) is None or find_spec("triton") is None:
        pytest.skip(f"{HOMES[form]} or triton is absent: the form {form} is NOT tried")
    given = os.environ | {"TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1"}
    (tmp_path / "check.py").write_text(CHECK)  # Triton reads its functions from files
    done = subprocess.run([sys.executable, tmp_path / "check.py", form], env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("form", HOMES)
def test_without_a_card_they_are_refused(form, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    hidden, table, targets = torch.zeros(2, 3), torch.zeros(4, 3), torch.tensor([1, 2])
    for loss in (ce_loss, cwt_loss):
        with pytest.raises(BadInput, match=rf"{form} runs on a GPU, not on cpu"):
            loss(hidden, table, targets, form)
    assert form not in available_kernels()


def test_without_its_package_a_kernel_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", None)
    with pytest.raises(BadInput, match="pip install cut-cross-entropy"):
        ce_loss(torch.zeros(2, 3), torch.zeros(4, 3), torch.tensor([1, 2]), "cce")
