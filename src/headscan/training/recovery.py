"""Getting a head back, `headscan recover`; and how probable a model with a head finds a text.

The contrastive optimum is z_v = log p(v | context) - log p(v) + const(context): negatives come with
their own frequency, so the model learns what the context *adds* to it. What is missing is the log
of the unigram probability:

    softmax(o . e_v + log p(v))

is a language model, without any training. A way of recovering is one class here or in a plug-in.
"""

import copy
import math
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from headscan.model import Lens
from headscan.model.settings import Device, Loading, TokenizerName
from headscan.model.source import quiet
from headscan.model.traits import embedding_table
from headscan.run import BadInput, Progress, Registry, Run, Settings, no_progress, verb
from headscan.run.settings import CommandLine, Option, Out, Overwrite, Progressing, Resume, Seed
from headscan.run.verbs import Given
from headscan.statistics.uncertainty import Floats, StandardError, enough_documents
from headscan.text import Windows
from headscan.text.source import TEXT, Documents, FieldName, MaxTokens, TextLike, check_text
from headscan.training.checkpoints import load_trained
from headscan.training.data import PackedText
from headscan.training.heads import body_of, divide_last_norm, fold_bias, head_of
from headscan.training.losses import ce_loss, log_unigram
from headscan.training.objective import CurvePoint, Likelihood
from headscan.training.result import RecoverResult


@torch.no_grad()
def token_losses(
    model: PreTrainedModel, ids: Int[Tensor, "batch time"]
) -> Float[Tensor, "batch time-1"]:
    """-log p(token t + 1 | tokens 0 ... t), nats, float32, of a causal model."""
    logits = model(input_ids=ids).logits[:, :-1].float()
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    return losses.view(len(ids), -1)


def perplexity(
    model: PreTrainedModel,
    rows: npt.NDArray[np.integer],
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    begins: npt.NDArray[np.int64] | None = None,
    batch: int = 16,
) -> Likelihood:
    """Held-out likelihood over windows int [n, T]: every token but each window's first is
    predicted.

    With a tokenizer there are bits_per_byte: the same nats over the UTF-8 bytes of the predicted
    tokens, comparable across tokenizers. The error is that of documents, which begin at the places
    `begins` of the n·T tokens, or of a text that runs on where there are fewer than three
    (`headscan.statistics.uncertainty`). Raises BadInput for no windows.
    """
    if len(rows) == 0:
        raise BadInput("There are no windows to measure the perplexity on.")
    device = next(model.parameters()).device
    sums = []
    # Logits and their logarithms, of a large vocabulary, in less than 2 GiB.
    batch = max(
        1, min(batch, int(2**31 / (12 * rows.shape[1] * getattr(model.config, "vocab_size", 1))))
    )
    training = model.training
    model.eval()
    for start in range(0, len(rows), batch):
        ids = torch.from_numpy(np.ascontiguousarray(rows[start : start + batch])).long().to(device)
        sums.append(token_losses(model, ids).double().cpu())
    model.train(training)
    nats = torch.cat(sums).numpy()
    tokens = nats.size
    mean = float(nats.sum()) / tokens
    deviation = _deviation(nats, np.ones(nats.shape), begins) if tokens else None
    interval = None if deviation is None else list(deviation.interval(mean, bounds=(0.0, None)))
    lengths = np.zeros(0)
    bits = None
    spread = None
    with suppress(BadInput):  # tokens that do not say how many bytes they are
        lengths = (
            lengths
            if tokenizer is None
            else bytes_of_tokens(tokenizer)[rows[:, 1:]].astype(np.float64)
        )
    if length := float(lengths.sum()):
        bits = float(nats.sum()) / math.log(2) / length
        spread = _deviation(nats / math.log(2), lengths, begins)
    return Likelihood(
        nats_per_token=mean,
        standard_error=None if deviation is None else deviation.error,
        interval=interval,
        perplexity=math.exp(min(mean, 700.0)),
        bits_per_byte=bits,
        tokens=tokens,
        perplexity_interval=None
        if interval is None
        else [math.exp(min(end, 700.0)) for end in interval],
        bits_per_byte_interval=None
        if bits is None or spread is None
        else list(spread.interval(bits, bounds=(0.0, None))),
    )


def _deviation(
    values: Floats, weights: Floats, begins: npt.NDArray[np.int64] | None
) -> StandardError | None:
    """The standard error of the sum of values over the sum of weights, of tokens 1, 2, ... of each
    window [n, T − 1].
    """
    windows = values.shape[0]
    length = values.shape[1] + 1
    owners = np.zeros(windows * length, dtype=np.int64)
    owners[begins if begins is not None else []] = 1
    owners = owners.cumsum().reshape(windows, length)[:, 1:].ravel()
    counts, sums = (
        np.bincount(owners, weights=each.ravel()).astype(np.float64) for each in (weights, values)
    )
    if enough_documents(counts):
        return StandardError.of_documents(sums, counts)
    return StandardError.of_text(values.sum(1), weights.sum(1))


def bytes_of_tokens(tokenizer: PreTrainedTokenizerBase) -> npt.NDArray[np.int64]:
    """UTF-8 bytes each token stands for, int64 [V]; special tokens stand for none.

    Exact for byte-level BPE (one character of the token's name is one byte) and for SentencePiece
    names. Raises BadInput for tokenizers whose tokens do not hold the spaces between words
    (WordPiece, of BERT).

    >>> from headscan.training.recipes import fit_tokenizer
    >>> tokenizer = fit_tokenizer(["aé aé aé"], 300)
    >>> int(bytes_of_tokens(tokenizer)[tokenizer.encode(" aé")].sum())
    4
    >>> from headscan.model import ByteTokenizer
    >>> int(bytes_of_tokens(ByteTokenizer()).sum())
    256
    """
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_ids)
    backend = getattr(
        tokenizer, "backend_tokenizer", None
    )  # slow tokenizers and that of bytes have none
    level = backend is not None and "ByteLevel" in backend.to_str()
    if (
        backend is not None
        and not level
        and not any(name and ("▁" in name or " " in name) for name in names)
    ):
        raise BadInput(
            "Bits a byte need a tokenizer whose tokens hold the spaces between words; "
            "WordPiece's do not."
        )
    lengths = np.zeros(len(names), dtype=np.int64)
    for index, name in enumerate(names):
        if index in special or name is None:
            continue
        byte = name.startswith("<0x") and name.endswith(">")
        plain = len(name.replace("▁", " ").removeprefix("##").encode())
        lengths[index] = len(name) if level else 1 if byte else plain
    return lengths


# ---- Getting a head back, `headscan recover`: from a body trained without one to next-token probabilities.


@dataclass(frozen=True, kw_only=True)
class HeadRecovery(Settings):
    """A way to give a headless body a head; its `Option` fields are its parameters.

    tied: the head's rows are the input's own. biased: the log of the unigram probability is added,
        where counts are given.
    """

    tied: ClassVar[bool] = False
    biased: ClassVar[bool] = True
    needs_counts: ClassVar[bool] = False

    @property
    def budget(self) -> tuple[int, int]:
        return 0, 0

    def prepare(self, whole: PreTrainedModel) -> None:
        """Say what of the model with its new head is to be trained."""

    def train(
        self,
        whole: PreTrainedModel,
        rows: npt.NDArray[np.integer],
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> list[CurvePoint]:
        """Train it on windows [n, T]; the curve. Most need no training."""
        return []


RECOVERIES: Registry[type[HeadRecovery]] = Registry("head recovery", "headscan.training.recovery")
"""All ways by name; `registry.build("NAME:KEY=VALUE")` makes one."""


def recovery_of(given: str | HeadRecovery) -> HeadRecovery:
    """The recovery of a name, with its default parameters; one that is made already is returned."""
    return given if isinstance(given, HeadRecovery) else cast(HeadRecovery, RECOVERIES.build(given))


def recover_head(
    model: PreTrainedModel,
    recovery: str | HeadRecovery = "bias",
    *,
    counts: Int[Tensor, " vocabulary"] | None = None,
    temperature: float = 1.0,
    copied: bool = True,
) -> PreTrainedModel:
    """A causal language model with a head, from a headless body (both of transformers).

    The body is copied, unless `copied` is False and nothing but a head is missing: then it is the
    new model's own.

    recovery: "tied": the input rows as they are. "bias": these and the log of the unigram
    probability, no training. "probe": a head of its own, started at "bias" (where counts are given;
    else at the rows), the body frozen. "finetune": the same start, everything trainable (the
    published one starts at the rows). Both are to be trained. counts: token counts of the training
    text, for "bias". temperature: the one of the contrastive loss: the scores are h . e / T.

    The bias is folded into the head's rows where the body ends in a LayerNorm (see `fold_bias`):
    the model then has no parameter that transformers do not know, and
    `AutoModelForCausalLM.from_pretrained` loads it anywhere. Elsewhere (RMSNorm) `lm_head.bias` is
    a parameter that only a model built here has. Raises BadInput where counts are missing or do not
    fit.
    """
    how = recovery_of(recovery)
    if how.needs_counts and counts is None:
        raise BadInput("The unigram bias needs the token counts of the training text.")
    if not temperature > 0:
        raise BadInput(f"temperature must be above 0, not {temperature}.")
    body = body_of(model)
    config = copy.deepcopy(model.config)
    config.tie_word_embeddings = how.tied
    whole = None if copied or how.tied else _around(body, config)
    if whole is None:
        whole = AutoModelForCausalLM.from_config(config, dtype=body.dtype).to(body.device)
        body_of(whole).load_state_dict(body.state_dict())
    whole.eval()
    if how.tied:
        whole.tie_weights()
        if (
            temperature != 1
        ):  # tied rows are the input's too: what can be divided is the state that meets them
            divide_last_norm(body_of(whole), temperature)
        return whole
    table = embedding_table(body).detach()
    head = whole.get_output_embeddings()
    assert head is not None
    assert isinstance(head.weight, Tensor)
    head.weight.data.copy_(table / temperature)
    if counts is not None and how.biased:
        if len(counts) != len(table):
            raise BadInput(
                f"There are counts of {len(counts)} tokens but the model has {len(table)}."
            )
        fold_bias(whole, log_unigram(counts, 0.5))
    how.prepare(whole)
    return whole


def _around(body: PreTrainedModel, config: Any) -> PreTrainedModel | None:
    """The causal language model whose body is this very one, its head empty; None where more than a
    head is missing.
    """
    with torch.device("meta"):
        whole: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=body.dtype)
    head = whole.get_output_embeddings()
    prefix = whole.base_model_prefix
    if head is None or type(getattr(whole, prefix, None)) is not type(body):
        return None
    setattr(whole, prefix, body)
    head.to_empty(device=body.device)
    for parameter in head.parameters():
        parameter.data.zero_()
    left = [*whole.parameters(), *whole.buffers()]
    return None if any(tensor.device.type == "meta" for tensor in left) else whole


@RECOVERIES.register("bias")
class UnigramBias(HeadRecovery):
    """The input rows and the log of the unigram probability, without training."""

    needs_counts: ClassVar[bool] = True


@RECOVERIES.register("tied")
class Tied(HeadRecovery):
    """The input rows as they are."""

    tied: ClassVar[bool] = True
    biased: ClassVar[bool] = False


def fit_head(
    model: PreTrainedModel,
    rows: npt.NDArray[np.integer],
    *,
    steps: int = 300,
    batch: int = 16,
    rate: float = 1e-4,
    seed: int = 0,
    warmup: float = 0.1,
    progress: Progress | None = None,
) -> list[CurvePoint]:
    """Train what is trainable of a causal model by cross-entropy on windows int [n, T]; returns the
    curve.

    AdamW, linear warm-up, then constant, as published. Deterministic in the seed. Raises BadInput
    where the loss is not finite.
    """
    tell = progress or no_progress
    generator = torch.Generator().manual_seed(seed)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=rate, weight_decay=0.01)
    table = torch.from_numpy(rows)
    total = 0.0
    every = max(1, steps // 20)
    size = batch * rows.shape[1]
    curve: list[CurvePoint] = []
    model.train()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / max(1.0, warmup * steps))
        ids = (
            table[torch.randint(len(table), (batch,), generator=generator)].long().to(model.device)
        )
        head = head_of(model)
        states = body_of(model)(ids).last_hidden_state[:, :-1].flatten(0, 1)
        loss = ce_loss(states, head.rows, ids[:, 1:].flatten(), bias=head.bias)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        total += float(loss.detach())
        if not total < float("inf"):
            raise BadInput(
                f"The loss is not finite at step {step}: lower the learning rate (now {rate})."
            )
        tell(
            f"training the head · loss {float(loss.detach()):.3f}",
            step * size,
            steps * size,
            "tokens",
        )
        if step % every == 0:
            curve.append(CurvePoint(step=step, loss=total / every))
            total = 0.0
    model.eval()
    return curve


@RECOVERIES.register("finetune")
class Finetuning(HeadRecovery):
    """The biased rows as a start, then everything trained by cross-entropy (published: from the
    rows, at 1e-4).
    """

    steps: Annotated[int, Option("Steps of the training of a recovered head.", low=0)] = 300
    batch: Annotated[
        int, Option("Windows a step of the training of a recovered head.", low=1, high=2**20)
    ] = 16
    rate: Annotated[
        float, Option("Learning rate of a recovered head; probe: 0.001, finetune: 0.0001.", above=0)
    ] = 1e-4

    @property
    def budget(self) -> tuple[int, int]:
        return self.steps, self.batch

    def train(
        self,
        whole: PreTrainedModel,
        rows: npt.NDArray[np.integer],
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> list[CurvePoint]:
        return fit_head(
            whole,
            rows,
            steps=self.steps,
            batch=self.batch,
            rate=self.rate,
            seed=seed,
            progress=progress,
        )


@RECOVERIES.register("probe")
class FrozenProbe(Finetuning):
    """The biased rows as a start, then trained by cross-entropy, the body frozen."""

    rate: Annotated[
        float, Option("Learning rate of a recovered head; probe: 0.001, finetune: 0.0001.", above=0)
    ] = 1e-3

    def prepare(self, whole: PreTrainedModel) -> None:
        body_of(whole).requires_grad_(False)


REPLACED = (
    "The folder holds a head already, so that nothing is missing: use the model as it is "
    "(`headscan checkup MODEL --text TEXT`). "
    "This run leaves that head out and makes another of the text. A body without a head comes "
    "from `headscan train gpt "
    "--objective cwt`; headscan.decone takes the cone out of what a head reads and keeps its "
    "logits."
)


@verb("recover")
def recover(
    run: Run,
    model: str | os.PathLike[str],
    text: Annotated[TextLike, TEXT],
    *,
    mode: Annotated[str | HeadRecovery, Option("Method of recovery.", choices=RECOVERIES)] = "bias",
    temperature: Annotated[
        float, Option("Objective that the model was trained with.", above=0)
    ] = 1.0,
    context: Annotated[
        int | None,
        Option("Tokens of a window. Default: the model's, at most 128.", low=1, group="Limits"),
    ] = None,
    held_out: Annotated[
        float, Option("Share of the windows that is held out.", above=0, high=1)
    ] = 0.05,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option("Weights and activations; auto is as the weights were saved.", group="Advanced"),
    ] = "float32",
    documents: Documents = "whole",
    field: FieldName = "text",
    max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None,
    device: Device = "auto",
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> RecoverResult:
    """Give the headless model in a folder a head, by `mode` (see `recover_head`), and write the
    whole to `out`/model.

    text: what counts tokens, trains the head ("probe", "finetune") and, its last `held_out` share,
    measures it. Give the text that the body was trained on: the unigram bias is a property of the
    training data. Raises BadInput where model, tokenizer or text cannot be used.
    """
    asked = Given(locals())
    if run.folder is None:
        raise BadInput("The recovered model is written to a folder: give --out.")
    how = recovery_of(mode)
    check_text(text)
    trained = load_trained(model, asked.chosen(Loading), run, bare=True)
    if type(trained.model.config) not in AutoModelForCausalLM._model_mapping:
        raise BadInput(
            f"'{trained.record.name}' reads both ways ({trained.model.config.model_type} has no "
            "causal form), so no head can "
            "predict its next token: recover is for causal models."
        )
    notes = [REPLACED] if trained.beheaded else []
    for note in notes:
        run.announce(note)
    body = trained.model
    words = trained.tokenizer
    if not Lens(body).traits.causal:
        raise BadInput(
            f"{trained.record.name} is no causal model: every state sees all tokens, so that no "
            "head on them predicts the next. "
            "`headscan recover` is for causal bodies that were trained without a head, such as "
            "gpt-headless."
        )
    context = context or min(128, getattr(body.config, "max_position_embeddings", None) or 128)
    windows = Windows(text, words, context, documents=documents, field=field, max_tokens=max_tokens)
    data, kept = PackedText.of(windows).split(held_out)
    counts = data.counts(body.config.vocab_size)
    rows_alone = recover_head(body, "tied", temperature=temperature)
    before = perplexity(rows_alone, kept.rows, words, begins=kept.begins)
    del rows_alone
    whole = recover_head(body, how, counts=counts, temperature=temperature, copied=False)
    curve = how.train(whole, data.rows, seed=seed, progress=run.progress)
    after = perplexity(whole, kept.rows, words, begins=kept.begins)
    with quiet():
        whole.save_pretrained(run.folder / "model")
    if hasattr(
        words, "save_pretrained"
    ):  # that of bytes has no files: it is named again where the model is used
        words.save_pretrained(run.folder / "model")
    steps, batch = how.budget
    parameters = sum(parameter.numel() for parameter in whole.parameters())
    record = replace(windows.record(), tokenizer=getattr(words, "name_or_path", None) or None)
    precision = str(whole.dtype).removeprefix("torch.")
    return RecoverResult(
        protocol=run.protocol(text=record, device=str(whole.device), dtype=precision, notes=notes),
        models=[trained.record],
        recovery=RECOVERIES.name_of(how),
        parameters=parameters,
        steps=steps,
        tokens=steps * batch * context,
        loss=curve[-1].loss if curve else None,
        before=before,
        after=after,
        curve=curve,
    )
