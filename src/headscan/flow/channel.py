"""The verb `channel`: how narrow and noisy an output may be and still identify its token."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Unpack

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.flow.codebooks import channel_bound, codebook, distances, noise_accuracy
from headscan.flow.comparison import (
    ComparedModel,
    Cuts,
    Length,
    PromptInputs,
    Prompts,
    RandomWeights,
    SiteGlobs,
    WindowCount,
    compared_models,
    cut_names,
    variant,
)
from headscan.flow.cost import affordable, multiplications
from headscan.flow.kinds import SHARED
from headscan.flow.result import ChannelPart, ChannelResult
from headscan.model import Lens
from headscan.model.lens import ModelsLike
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import can_cache
from headscan.run import BadInput, Finding, Run, verb
from headscan.run.settings import (
    FindingOptions,
    Option,
    Seed,
)
from headscan.text.source import TEXT, Start, TextLike

BUDGET_SHARE = 0.25
"""The share of the budget that a codebook may take, and that comparing its pairs may take."""


@verb("channel")
def channel(
    run: Run,
    models: ModelsLike,
    prompt: Prompts = None,
    *,
    text: Annotated[TextLike | None, TEXT] = None,
    windows: WindowCount = None,
    length: Length = None,
    start: Start = "tokenizer",
    at: SiteGlobs = "block.*",
    cuts: Cuts = "whole",
    null: RandomWeights = False,
    noise: Annotated[
        float | Sequence[float],
        Option(
            "Standard deviations of the noise, in units of a feature's; comma-separated.", above=0
        ),
    ] = (0.25, 0.5, 1.0, 2.0),
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> ChannelResult:
    """Measure how narrow and noisy the channel from a token to its output may be: width, noise,
    capacity.

    At the deepest site of each model and cut: how far the outputs of all tokens lie apart, and how
    many are decoded through noise from how many features.

    Args:
        models, prompt, text: as for `headscan.flow`.

    >>> from headscan.model import Lens
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    >>> result = channel(Lens(GPT2LMHeadModel(config)), [3, 1, 4, 1, 5])
    >>> result.parts[0].vocabulary, result.parts[0].distances.duplicates
    (50, 0)
    """
    noises = noise if isinstance(noise, Sequence) else (noise,)
    if not noises:
        raise BadInput("Give --noise at least one number.")
    prompts = PromptInputs(prompt, text, windows, length, start)
    loading = Loading(tokenizer=tokenizer, dtype=dtype, device=device)
    names = cut_names(cuts, null=null)
    compared = compared_models(models, prompts, loading, at, names, run)

    measure = partial(measure_channel, noises=noises, seed=seed, run=run)
    parts = compared.measure_each(run, ChannelPart, measure)
    notes = [note for part in parts for note in part.left_out]
    return ChannelResult(
        prompts=compared.prompts,
        length=compared.length,
        parts=parts,
        findings=channel_findings(parts),
        protocol=run.protocol(text=compared.text, device=compared.device, notes=notes),
        models=compared.records,
    )


def measure_channel(
    model: ComparedModel, cut_name: str, *, noises: Sequence[float], seed: int, run: Run
) -> ChannelPart:
    """Return the channel of one model and cut at its deepest site.

    Its codebook is that of the last token of the first prompt.
    """
    lens = model.lens
    deepest = variant(cut_name, model.sites).on(lens).sites[-1]
    cut = variant(cut_name, [deepest])
    tokens = affordable_tokens(lens, cut, model.token_ids.shape[1], seed)
    left_out = []
    rows = 512
    if tokens is not None:
        rows = 64
        left_out.append(
            f"The codebook of {lens.name}, {cut_name} has {len(tokens)} tokens drawn from the "
            f"vocabulary of {lens.vocabulary_size}: distances to the nearest other token are "
            "upper bounds, and so is what is decoded."
        )
        run.announce(left_out[0])

    prefix = model.token_ids[0, :-1].tolist()
    book = codebook(lens, cut, prefix, tokens=tokens, rows=rows, progress=run.progress)
    run.progress(f"{lens.name}, {cut_name} · noise", 1, 2, "steps")
    accuracies = noise_accuracy(book, noises=noises, seed=seed)
    levels = sorted({row.noise for row in accuracies})
    return ChannelPart(
        model=lens.name,
        cut=cut_name,
        site=cut.sites[0],
        vocabulary=len(book),
        width=book.shape[1],
        distances=distances(book),
        noise=accuracies,
        bounds=[channel_bound(book, level) for level in levels],
        left_out=left_out,
    )


def affordable_tokens(lens: Lens, cut: Slice, length: int, seed: int) -> Int[Tensor, " C"] | None:
    """Return the tokens of a codebook that a quarter of the budget has room for, drawn and sorted;
    None: the whole vocabulary.

    A code word costs a row of `length` tokens, or one token behind a cached prefix; all pairs of
    code words are compared.
    """
    token_cost = multiplications(lens, cut.sites)
    pair_cost = 2.0 * lens.width(cut.sites[0])
    pairs = affordable(lens, pair_cost, BUDGET_SHARE)
    code_words = affordable(lens, length * token_cost, BUDGET_SHARE)
    if lens.vocabulary_size <= min(code_words, pairs**0.5):
        return None

    row_length = 1 if can_cache(cut.but(tokens="-1").on(lens)) else length
    code_words = affordable(lens, row_length * token_cost, BUDGET_SHARE)
    count = max(2, min(code_words, int(pairs**0.5), lens.vocabulary_size))
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(lens.vocabulary_size, generator=generator)[:count]
    return drawn.sort().values


def channel_findings(parts: Sequence[ChannelPart]) -> list[Finding]:
    """Return a SHARED alarm for each part in which tokens share one output."""
    findings = []
    for part in parts:
        count = part.distances.duplicates
        if not count:
            continue
        sentence = (
            f"{count} tokens share their output with another: no decoder can distinguish them."
        )
        findings.append(
            SHARED.finding("alarm", sentence, model=part.model, site=part.site, value=float(count))
        )
    return findings
