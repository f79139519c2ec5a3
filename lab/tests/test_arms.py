"""Every arm: its gradient beside that of the plain formula, its steps in anybody's Trainer, and
what is kept in the end.
"""

import shutil

import pytest
import torch
from headscan_lab.tournament.optimisers import (
    CentreHead,
    CoupledAdam,
    CoupledAdamW,
    Muon,
    centre_head,
)
from headscan_lab.tournament.variants import ARMS
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    Trainer,
    TrainingArguments,
)

from headscan import BadInput
from headscan.model.mixer import MixerConfig
from headscan.text import Windows
from headscan.training import (
    OBJECTIVES,
    PackedText,
    ce_loss,
    collate,
    log_unigram,
    perplexity,
    recipe_of,
    train,
)
from headscan.training.heads import capped
from headscan.training.objective import CrossEntropy
from headscan.training.optimisers import AdamW
from tests.tiny import two_blocks

SIZE = 40
WIDTH = 8
COUNTS = torch.arange(1, SIZE + 1)
IDS = torch.randint(1, SIZE, (3, 9), generator=torch.Generator().manual_seed(1))


def _model(arm, dtype=torch.float64):
    torch.manual_seed(0)
    shape = {
        "vocab_size": SIZE,
        "tie_word_embeddings": arm.tied,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    if arm.recipe == "mixer":
        config = MixerConfig(
            **shape,
            hidden_size=WIDTH,
            num_hidden_layers=1,
            max_position_embeddings=16,
            final_norm=True,
        )
    else:
        off = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        config = GPT2Config(**shape, **off, n_embd=WIDTH, n_layer=1, n_head=2, n_positions=16)
    kind = AutoModel if arm.objective.headless else AutoModelForCausalLM
    return kind.from_config(config).to(dtype)


def _learner(arm, dtype=torch.float64):
    return arm.learner(_model(arm, dtype), COUNTS).to(dtype)


# The plain formulas by name. x: states before the norm [K, d], h: after it, w: rows [V, d],
# y: targets.


def _cosine(x):
    unit = x / x.norm(dim=1, keepdim=True)
    gram = unit @ unit.T
    return (gram.sum() - gram.diagonal().sum()) / (len(x) * (len(x) - 1))


def _less_own_mean(x):
    return x - x.mean(1)[:, None]


PENALTIES = {
    "z-loss": lambda x, h, w, z: torch.log(torch.exp(z).sum(1)).pow(2).mean(),
    "mu-loss": lambda x, h, w, z: (w.sum(0) / SIZE).pow(2).sum(),
    "cosine-states": lambda x, h, w, z: _cosine(h),
    "cosine-block": lambda x, h, w, z: _cosine(x),
    "cosine-block-centred": lambda x, h, w, z: _cosine(_less_own_mean(x)),
}


def _plain_loss(name, arm, learner):
    model = learner.model
    seen = []
    body = getattr(model, model.base_model_prefix, model)
    norm = body.norm if arm.recipe == "mixer" else body.ln_f
    norm.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    h = body(IDS).last_hidden_state[:, :-1].reshape(-1, WIDTH)
    x = seen[0][:, :-1].reshape(-1, WIDTH)
    y = IDS[:, 1:].reshape(-1)
    w = (
        model.get_input_embeddings() if arm.objective.headless else model.get_output_embeddings()
    ).weight
    own = torch.arange(len(y))
    if arm.objective.headless:  # every target of the batch is a class, however often it occurs
        z = h @ w[y].T
        return -(z[own, own] - torch.log(torch.exp(z).sum(1))).mean()
    z = h @ w.T
    if learner.extra is not None:
        z = z + learner.extra.bias
    if arm.objective.cap:
        z = arm.objective.cap * torch.tanh(z / arm.objective.cap)
    loss = -(z[own, y] - torch.log(torch.exp(z).sum(1))).mean()
    for part in filter(None, (arm.regulariser or "").split(",")):
        term, strength = part.split(":")
        loss = loss + float(strength) * PENALTIES[term](x, h, w, z)
    return loss


@pytest.mark.parametrize("name", ARMS)
def test_the_gradient_is_that_of_the_plain_formula(name):
    arm = ARMS[name]
    ours = _learner(arm)
    plain = _learner(arm)
    torch.manual_seed(5)
    loss = ours(IDS, IDS)["loss"]
    loss.backward()
    want = _plain_loss(name, arm, plain)
    want.backward()
    assert loss.item() == pytest.approx(want.item(), rel=1e-6)
    slopes = dict(plain.named_parameters())
    assert len(slopes) > 5
    for one, parameter in ours.named_parameters():
        if slopes[one].grad is None:
            assert parameter.grad is None or not parameter.grad.any()
        else:
            torch.testing.assert_close(
                parameter.grad, slopes[one].grad, rtol=1e-5, atol=1e-7, msg=one
            )


def test_the_bias_starts_at_the_log_unigram_and_has_a_rate_of_its_own():
    learner = _learner(ARMS["ce+unigram"])
    torch.testing.assert_close(learner.extra.bias.data, log_unigram(COUNTS, 0.5), rtol=1e-6, atol=0)
    groups = (
        ARMS["ce+fast-bias"]
        .optimiser.make(_learner(ARMS["ce+fast-bias"]), rate=1e-3, decay=0.1)
        .param_groups
    )
    assert [(group["lr"], group["weight_decay"], len(group["params"]) > 1) for group in groups] == [
        (1e-3, 0.1, True),
        (1e-3, 0.0, True),
        (0.1, 0.0, False),
    ]
    with pytest.raises(BadInput, match="bias_rate is not used without a bias"):
        CrossEntropy(bias_rate=0.1)
    with pytest.raises(BadInput, match="cap is not used by the projection chunked"):
        OBJECTIVES.build("ce", {"cap": 30.0, "projection": "chunked"})


def test_every_form_of_the_cross_entropy_gives_the_bias_its_gradient():
    hidden = torch.randn(30, 8)
    rows = torch.randn(40, 8)
    targets = torch.arange(30)
    slopes = []
    for form in ("full", "chunked", "fused"):
        bias = torch.linspace(-1, 1, 40).requires_grad_()
        ce_loss(hidden, rows, targets, form, bias=bias, chunk=7).backward()
        slopes.append(bias.grad)
    torch.testing.assert_close(slopes[1], slopes[0])
    torch.testing.assert_close(slopes[2], slopes[0])


# ---- the optimiser


def _restated(table, slopes, *, rate, betas, eps, decay):
    """Coupled Adam, as arXiv:2502.08441 writes it: v̂ element by element, its mean over the
    vocabulary, then the step.

    The authors' own code (github.com/flxst/coupled-adam, nanoGPT/coupled_adam.py at ba54c74e) is no
    package, and of its three ways runs one; torch 2.13 no longer has a name that it imports. That
    one way, run beside ours on a head's cross-entropy (V = 500, d = 16, scales 1 and 3, three seeds
    each): the largest difference over 50 steps was 6e-8.
    """
    m = v = torch.zeros_like(table)
    for step, g in enumerate(slopes, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        shared = (v / (1 - betas[1] ** step)).sum(0) / len(table)
        table = table - rate * decay * table
        table = table - rate * (m / (1 - betas[0] ** step)) / (shared.sqrt() + eps)
    return table


def test_coupled_adam_is_the_published_formula_over_fifty_steps():
    torch.manual_seed(0)
    start = 0.02 * torch.randn(40, 8)
    scales = torch.logspace(-3, 1, 40)[:, None]
    slopes = [torch.randn(40, 8) * scales for _ in range(50)]
    numbers = {"betas": (0.9, 0.95), "eps": 1e-8}
    want = _restated(start.double(), [g.double() for g in slopes], rate=3e-3, decay=0.1, **numbers)
    tables = [torch.nn.Parameter(start.clone()) for _ in range(3)]
    coupled = CoupledAdamW(
        [{"params": [tables[0]], "apart": True}, {"params": [tables[1]]}],
        3e-3,
        weight_decay=0.1,
        **numbers,
    )
    usual = torch.optim.AdamW([tables[2]], 3e-3, weight_decay=0.1, **numbers)
    for g in slopes:
        for table in tables:
            table.grad = g.clone()
        coupled.step()
        usual.step()
    assert (tables[0].double() - want).abs().max() <= 1e-6
    torch.testing.assert_close(tables[1], tables[2], rtol=1e-6, atol=1e-6)
    assert (tables[0] - tables[2]).abs().max() > 0.01


def test_coupled_tables_are_those_that_were_asked_for():
    tied = _learner(ARMS["ce+tied"])
    untied = _learner(ARMS["ce"])
    bare = _learner(ARMS["headless"])
    for learner, coupled, found in (
        (tied, "both", 1),
        (untied, "both", 2),
        (untied, "input", 1),
        (bare, "head", 1),
    ):
        groups = CoupledAdam(coupled=coupled).make(learner, rate=1e-3).param_groups
        assert len(groups[0]["params"]) == found
        assert sum(len(group["params"]) for group in groups) == len(list(learner.parameters()))


def _newton_schulz(matrix):
    """The published iteration (Jordan 2024) in float64: five steps of x ← ax + (bA + cA²)x, A =
    xxᵀ.
    """
    a = 3.4445
    b = -4.775
    c = 2.0315
    x = matrix / matrix.norm()
    x = x.T if matrix.shape[0] > matrix.shape[1] else x
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


@pytest.mark.parametrize("name", ["ce", "ce+tied", "headless", "mixer"])
def test_muon_moves_the_matrices_of_blocks_and_adamw_all_else(name):
    torch.manual_seed(0)
    muon = _learner(ARMS[name])
    plain = _learner(ARMS[name])
    numbers = {"rate": 3e-3, "betas": (0.9, 0.95), "decay": 0.1}
    optimizer = Muon().make(muon, **numbers)
    usual = AdamW().make(plain, **numbers)
    theirs = dict(plain.named_parameters())
    momenta = {}
    moved = {
        id(one) for group in optimizer.param_groups if group["apart"] for one in group["params"]
    }
    matrices = [one for one, value in muon.named_parameters() if id(value) in moved]
    assert matrices == [
        one
        for one, value in theirs.items()
        if value.ndim == 2 and (".h." in one or ".layers." in one)
    ]
    assert len(matrices) >= 2
    want = {one: theirs[one].detach().clone() for one in matrices}
    for _ in range(4):
        for one, value in muon.named_parameters():
            value.grad = torch.randn_like(value)
            theirs[one].grad = value.grad.clone()
            if one in want:
                momenta[one] = 0.95 * momenta.get(one, 0) + 0.05 * value.grad
                step = (
                    _newton_schulz(0.05 * value.grad + 0.95 * momenta[one])
                    * 0.2
                    * max(value.shape) ** 0.5
                )
                want[one] = (1 - 3e-3 * 0.1) * want[one] - 3e-3 * step
        optimizer.step()
        usual.step()
    for one, value in muon.named_parameters():
        if one in want:  # torch multiplies in bfloat16
            torch.testing.assert_close(value, want[one], rtol=0, atol=1.2e-4)
        else:
            torch.testing.assert_close(value, theirs[one], rtol=1e-12, atol=1e-12)


def test_a_torch_without_muon_is_named(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(BadInput, match=r"muon needs torch 2\.9 or later"):
        Muon().make(_learner(ARMS["ce"]), rate=1e-3)


def test_centring_the_head_leaves_the_loss_of_an_untied_model_alone():
    arm = ARMS["ce"]
    learners = [_learner(arm), _learner(arm)]
    steps = [arm.optimiser.make(learner, rate=1e-2) for learner in learners]
    for _ in range(15):
        losses = []
        for learner, step in zip(learners, steps, strict=True):
            step.zero_grad()
            loss = learner(IDS, IDS)["loss"]
            loss.backward()
            step.step()
            losses.append(loss.item())
        centre_head(learners[1].model)
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert learners[1].model.get_output_embeddings().weight.mean(0).abs().max() < 1e-12
    with pytest.raises(BadInput, match="no head whose rows"):
        centre_head(_model(ARMS["headless"]))


# ---- in a Trainer


@pytest.mark.parametrize(
    "name",
    [
        "ce+unigram+tied",
        "ce+fast-bias",
        "ce+mu-centre",
        "ce+coupled",
        "ce+muon",
        "headless",
        "mixer+unigram",
    ],
)
def test_it_works_in_a_trainer_that_knows_nothing_of_it(name, tmp_path):
    arm = ARMS[name]
    learner = _learner(arm, torch.float32)
    arguments = TrainingArguments(
        str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=3,
        learning_rate=1e-2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        logging_strategy="no",
    )
    before = {one: value.detach().clone() for one, value in learner.named_parameters()}
    trainer = Trainer(
        learner,
        arguments,
        train_dataset=PackedText(IDS.numpy()),
        data_collator=collate,
        optimizers=(arm.optimizer(learner, arguments), None),
        callbacks=arm.callbacks(),
    )
    trainer.train()
    moved = [
        one for one, value in learner.named_parameters() if not torch.equal(value, before[one])
    ]
    assert len(moved) > len(before) / 2
    if arm.centre_head:
        assert learner.model.get_output_embeddings().weight.mean(0).abs().max() < 1e-6
    head = arm.objective.head(learner.model, learner.extra)
    if head is not None and head.bias is not None:
        with torch.no_grad():
            states = learner.model.base_model(IDS).last_hidden_state
            want = head.logits(states.reshape(-1, WIDTH))
            assert learner.settle() == []
            torch.testing.assert_close(
                learner.model(IDS).logits.reshape(-1, SIZE), want, rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize("optimiser", ["coupled-adam", "muon"])
def test_training_keeps_the_bias_the_rate_and_the_optimiser_over_a_resume(
    optimiser, story_file, tmp_path
):
    plan = recipe_of("gpt").but(schedule="constant", warmup=1, batch=4, context=16, vocabulary=300)
    plan = plan.but(architecture=two_blocks)
    options = {"out": tmp_path, "trainer": {"save_steps": 1}, "geometry_every": 1, "tied": True}
    options |= {
        "objective": CrossEntropy(head_bias="unigram", bias_rate=0.05),
        "optimiser": optimiser,
    }
    options |= {"callbacks": [CentreHead()]}
    whole = train(plan, str(story_file), steps=2, **options)
    shutil.rmtree(tmp_path / "checkpoint-2")
    (tmp_path / "model" / "model.safetensors").unlink()
    again = train(plan, str(story_file), steps=2, resume=True, **options)
    assert again.heldout == whole.heldout
    assert [moment.gradient for moment in again.scan] == [moment.gradient for moment in whole.scan]
    assert all(
        0 < moment.gradient.kept_norm < moment.gradient.kept_norm_best for moment in again.scan
    )
    assert "gradient through the head" in again.page()
    kept = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    words = AutoTokenizer.from_pretrained(tmp_path / "model")
    held_out = PackedText.of(Windows(str(story_file), words, 16)).split(0.05)[1]
    assert perplexity(kept, held_out.rows).nats_per_token == pytest.approx(
        whole.heldout["head"].nats_per_token, abs=1e-4
    )
    with pytest.raises(BadInput, match="the optimiser was"):
        train(plan, str(story_file), steps=4, resume=True, **options | {"optimiser": "adamw"})


def test_a_cap_is_no_part_of_the_model_that_is_kept():
    learner = _learner(ARMS["ce+cap15"])
    torch.nn.init.normal_(learner.model.get_output_embeddings().weight, std=30)
    plain = learner.model(IDS).logits
    with capped(learner.model, 15.0):
        torch.testing.assert_close(learner.model(IDS).logits, 15 * torch.tanh(plain / 15))
    torch.testing.assert_close(learner.model(IDS).logits, plain)
    assert learner.settle() == ["the logits of the model that is kept are to be capped at 15"]
    assert _learner(ARMS["ce"]).settle() == []
