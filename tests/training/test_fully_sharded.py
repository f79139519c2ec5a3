"""A Learner under torch's fully_shard (FSDP2), two gloo processes on a CPU: the loss and the
gradients of one process.
"""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from transformers import AutoModel, AutoModelForCausalLM, GPT2Config

from headscan import BadInput
from headscan.training import OBJECTIVES, Learner, gather_ids, recipe_of, train
from tests.forked import grouped

CONFIG = GPT2Config(
    vocab_size=40, n_embd=8, n_layer=2, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
)
AIMS = {
    "cwt": OBJECTIVES.build("cwt"),
    "chunked": OBJECTIVES.build("cwt", {"form": "chunked"}),
    "ce": OBJECTIVES.build("ce"),
}


def _learner(name):
    torch.manual_seed(0)
    model = (AutoModel if AIMS[name].headless else AutoModelForCausalLM).from_config(
        CONFIG, dtype=torch.float64
    )
    return Learner(model.eval(), AIMS[name])


def _ids():
    return torch.randint(1, 40, (4, 10), generator=torch.Generator().manual_seed(1))


def _work(folder, rank):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    for name in AIMS:
        learner = _learner(name)
        for block in getattr(learner.model, "transformer", learner.model).h:
            fully_shard(block, mesh=mesh)
        fully_shard(learner, mesh=mesh)
        local = _ids()[2 * rank : 2 * rank + 2]
        pool = gather_ids(local[:, 1:].flatten()) if AIMS[name].contrastive else None
        loss = learner(local, local, pool=pool, share=torch.tensor(2 / 36, dtype=torch.float64))[
            "loss"
        ]
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        gradients = {key: value.grad.full_tensor() for key, value in learner.named_parameters()}
        torch.save((total / 2, gradients), folder / f"{name}-{rank}.pt")


def test_a_sharded_learner_has_the_loss_and_gradients_of_a_whole_one(tmp_path):
    grouped(partial(_work, tmp_path), 2, tmp_path)
    for name in AIMS:
        learner = _learner(name)
        loss = learner(_ids(), _ids())["loss"]
        loss.backward()
        expected = {key: value.grad for key, value in learner.named_parameters()}
        for rank in range(2):
            total, gradients = torch.load(tmp_path / f"{name}-{rank}.pt", weights_only=True)
            assert total.item() == pytest.approx(loss.item(), abs=1e-12)
            assert gradients.keys() == expected.keys()
            for key, gradient in expected.items():
                torch.testing.assert_close(gradients[key], gradient, rtol=0, atol=1e-12)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_the_trainers_own_sharding_is_refused_on_a_cpu(story_file, tmp_path):
    with pytest.raises(BadInput, match="needs an accelerator"):
        train(
            recipe_of("gpt"),
            str(story_file),
            out=tmp_path,
            steps=1,
            vocabulary=300,
            trainer={"fsdp": "full_shard"},
        )
