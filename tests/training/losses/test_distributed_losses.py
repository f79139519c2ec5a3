"""Two gloo processes give the loss and the gradient of one."""

from functools import partial

import torch
import torch.distributed as dist

from headscan.training import cwt_loss, gather_ids
from tests.forked import grouped

# the processes hold different numbers of rows, as masked batches do
WIDTH = 5
SIZE = 9
SHARES = (7, 4)


def _problem():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(sum(SHARES), WIDTH, generator=generator, dtype=torch.float64)
    table = torch.randn(SIZE, WIDTH, generator=generator, dtype=torch.float64)
    return hidden, table, torch.randint(SIZE, (sum(SHARES),), generator=generator)


def _share(hidden, table, targets):
    """This process's share of the mean over all, scaled so that DDP's mean of the gradients is
    exact.
    """
    losses = cwt_loss(hidden, table, targets, pool=gather_ids(targets), reduction="none")
    return losses.sum() * 2 / sum(SHARES)


def _work(results, rank):
    hidden, table, targets = _problem()
    start = sum(SHARES[:rank])
    part = slice(start, start + SHARES[rank])
    local = hidden[part].clone().requires_grad_()
    shared = table.clone().requires_grad_()
    loss = _share(local, shared, targets[part])
    loss.backward()
    loss = loss.detach() / 2
    for tensor in (loss, shared.grad):  # what DDP does with gradients: the mean over processes
        dist.all_reduce(tensor)
    torch.save([loss, shared.grad / 2, local.grad / 2], results / f"{rank}.pt")


def test_two_processes_equal_one(tmp_path):
    grouped(partial(_work, tmp_path), 2, tmp_path)
    answers = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    hidden, table, targets = _problem()
    hidden.requires_grad_(), table.requires_grad_()
    loss = cwt_loss(hidden, table, targets, form="dense")
    loss.backward()
    grads = torch.cat([answer[2] for answer in answers])
    torch.testing.assert_close(grads, hidden.grad, rtol=0, atol=1e-12)
    for answer in answers:
        torch.testing.assert_close(answer[0], loss.detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(answer[1], table.grad, rtol=0, atol=1e-12)


def test_alone_nothing_is_gathered():
    assert gather_ids(torch.arange(3)).tolist() == [0, 1, 2]
