"""`invert`: from the output of a slice of a model back to the tokens, with a certificate."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from headscan.inversion.assess import assess, refuse_incomparable
from headscan.inversion.leaked import (
    LeakedStates,
    estimated_noise,
    foreign,
    leaked,
    opened_states,
    solve_unknown,
)
from headscan.inversion.methods import METHODS, Method, Problem
from headscan.inversion.observation import OBSERVATIONS
from headscan.inversion.reconstruction import VERDICTS
from headscan.inversion.result import InvertResult, PromptInversion
from headscan.model.framed import beginning, framed, refuse_start
from headscan.model.lens import Lens, ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.sliced_model import At
from headscan.run import (
    BadInput,
    Option,
    Row,
    Run,
    Seed,
    plain,
    verb,
)
from headscan.run.settings import RunOptions
from headscan.states.stored import StoredSource
from headscan.text import display
from headscan.text.prompts import Prompt, PromptsLike, are_texts, read_prompts
from headscan.text.source import Start, StartName

CertificateName = Literal["auto", "exhaustive", "sampled"]
StatesLike = str | os.PathLike[str] | Tensor | np.ndarray[Any, Any] | Mapping[str, Any]
# Prompts that are inverted, and stored for a resume, together: a batch is faster, its bits do not
# depend on a resume.
TOGETHER = 16


@verb("invert")
def invert(
    run: Run,
    model: ModelLike,
    prompt: Annotated[
        PromptsLike | None,
        Option(
            "The text whose states are inverted; may be given several times.",
            content=True,
            repeat=True,
            group="Input",
        ),
    ] = None,
    *,
    states: Annotated[
        StatesLike | None,
        Option(
            "Leaked states instead of a prompt: a file, folder or URL in any format that scan "
            "reads (FILE#SITE is one of its sites). In Python also an array [T, w] or "
            "[prompts, T, w].",
            content=True,
            metavar="FILE",
            group="Input",
        ),
    ] = None,
    method: Annotated[
        str | Method,
        Option(
            "Method: exact (left to right), joint, indirect, direct or sequential.",
            choices=METHODS,
            group="Input",
        ),
    ] = "auto",
    given: Annotated[
        str,
        Option(
            "The attacker observes: states (of the slice), next-token (log-probabilities), "
            "embedding.",
            choices=OBSERVATIONS,
            group="Input",
        ),
    ] = "states",
    tolerance: Annotated[
        float | None,
        Option(
            "Largest relative residual that counts as equal. Default: 8 times the noise measured.",
            above=0,
        ),
    ] = None,
    certificate: Annotated[
        CertificateName,
        Option(
            "Tokens compared with those recovered: every token (exhaustive), some (sampled), or "
            "every one where that is at most 1e10 multiplications a prompt (auto)."
        ),
    ] = "auto",
    vocabulary: Annotated[
        str | Sequence[str] | None,
        Option("A text; only its tokens may be returned.", content=True, group="Limits"),
    ] = None,
    at: At = "block.0",
    start: Start = "tokenizer",
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[RunOptions],
) -> InvertResult:
    """Run a slice on prompts, forget the prompts, and find them again from the output; or start
    from states that leaked.

    Args:
        model: a Lens, what `Lens.load` takes, or a live model of transformers.
        prompt: one or several texts, or token ids as lists, tensors or arrays.
        states: in place of a prompt, states of the slice: a path, an array [T, w] or [prompts, T,
            w], with noise of any size.
        at: the slice, as a `Slice` or as text: "block.3", "block.3[:, 1:, :] only=attention".
        method: a name, or an object with its own parameters: `Exact(budget=100)`,
            `Direct(preset="seed")`.

    Raises BadInput for an empty or too long prompt, a slice that the method cannot invert, a
    restricted vocabulary that lacks a token of the prompt, an option that nothing uses.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config))
    >>> result = invert(lens, [7, 3, 9])
    >>> result.prompts[0].recovered, result.verdict
    ([7, 3, 9], 'recovered and unique')
    >>> leak = lens.run([[7, 3, 9]], sites="block.0")["block.0"][0]
    >>> leak += 1e-3 * leak.norm() / leak.numel() ** 0.5
    >>> invert(lens, states=leak).prompts[0].recovered
    [7, 3, 9]
    """
    if (prompt is None) == (states is None):
        raise BadInput(
            "Say what is inverted: a text with --prompt, or states with --states, and not both."
        )
    if states is not None:
        run.refuse_changed("by --states; it belongs to --prompt", given=given, start=start)
    observation = OBSERVATIONS[given]
    if not observation.sliced:
        users = sorted(name for name, item in OBSERVATIONS.items() if item.sliced)
        run.refuse_changed(f"by the given {given}; it belongs to {', '.join(users)}", at=at)
    named_method: Method = METHODS.build(method) if isinstance(method, str) else method
    named_slice = Slice.parse(at) if isinstance(at, str) else at
    lens = open_model(model, Loading(tokenizer=tokenizer, dtype=dtype, device=device))
    store = None if states is None else opened_states(states)
    refuse_start(run, lens, start)
    lens = _framed(lens, prompt, store, start)
    cut = observation.on(lens, named_slice)

    source = _leaked_source(cut, store) if prompt is None else _prompt_source(cut, prompt)
    for length in source.lengths:
        cut.kept(length)  # refuses a slice that leaves nothing of a prompt
    ordered = observation.ordered and cut.slice.pool is None
    chosen = named_method.chosen(cut, source.lengths, ordered=ordered)
    if states is not None and chosen.target_scale != 1.0:
        raise BadInput("scale belongs to --prompt: states that leaked are taken as they are.")
    if certificate == "exhaustive":
        refuse_incomparable(cut, source.lengths, ordered)
    allowed = _allowed(lens, vocabulary, source.prompts)

    record = lens.provenance()
    parameters = Row(plain({"method": chosen.name} | asdict(chosen)))  # type: ignore[arg-type]
    lens.identify(run)
    run.identify("the prompts", source.identity)
    run.identify("the method", plain(parameters))
    run.identify("the vocabulary", None if allowed is None else allowed.nonzero()[:, 0].tolist())

    problem = Problem(
        cut=cut,
        targets=source.targets(cut, chosen.target_scale),
        lengths=source.lengths,
        known=source.known,
        allowed=allowed,
        tolerance=tolerance,
        seed=seed,
        progress=run.progress,
    )
    entries = _inverted(run, problem, source, chosen, certificate)
    return InvertResult(
        protocol=run.protocol(device=record.device, dtype=record.dtype),
        models=[record],
        prompts=entries,
        token_accuracy=_token_accuracy(entries),
        estimated_noise=None if source.leak is None else estimated_noise(entries),
        verdict=max((entry.verdict for entry in entries), key=VERDICTS.index),
        slice=cut.slice,
        slice_text=str(cut.slice),
        method=chosen.name,
        parameters=parameters,
        given=given,
        causal=cut.causal,
    )


@dataclass(frozen=True)
class _Source:
    """The prompts that are inverted, and where their outputs come from.

    Attributes:
        prompts: the prompts; without tokens where states were given that have none.
        known: of each prompt the special tokens that were added, by position.
        lengths: tokens of each prompt.
        leak: the states that were given; None where the prompts are run here.
    """

    prompts: list[Prompt]
    known: list[dict[int, int]]
    lengths: list[int]
    leak: LeakedStates | None = None

    @property
    def identity(self) -> Any:
        """Return what a resumed run compares."""
        if self.leak is None:
            return [list(prompt.ids) for prompt in self.prompts]
        return self.leak.sha256

    @torch.no_grad()
    def targets(self, cut: SlicedModel, scale: float = 1.0) -> list[Tensor]:
        """Return the output of each prompt, each run alone; or the states that were given.

        `scale` multiplies the embeddings of a prompt before it is run.
        """
        if self.leak is not None:
            return [target.to(cut.lens.device) for target in self.leak.targets]
        if scale == 1.0:
            return [cut.run([list(prompt.ids)]).float()[0] for prompt in self.prompts]
        scaled = []
        for prompt in self.prompts:
            embeddings = cut.embed(torch.tensor([prompt.ids], device=cut.lens.device))
            scaled.append(cut.run(inputs_embeds=scale * embeddings).float()[0])
        return scaled


def _framed(
    lens: Lens, prompt: PromptsLike | None, store: StoredSource | None, start: StartName
) -> Lens:
    """Return the model as it read the prompts.

    Texts are read by a causal model from their start tokens on; an encoder's are part of the
    prompt. Stored states say what stood around their windows. Token ids are read as they are.
    """
    if store is not None:
        return framed(lens, store.vectors.frame)
    if lens.traits.causal and are_texts(prompt):
        return beginning(lens, start)
    return lens


def _leaked_source(cut: SlicedModel, store: StoredSource | None) -> _Source:
    assert store is not None  # either a prompt or states were given
    leak = leaked(cut, store)
    known: list[dict[int, int]] = [{} for _ in leak.prompts]
    return _Source(leak.prompts, known, leak.lengths, leak)


def _prompt_source(cut: SlicedModel, texts: PromptsLike) -> _Source:
    """Read prompts. Encoders get their special tokens with a text, and these are known."""
    special = not cut.causal
    prompts = read_prompts(texts, cut.lens.tokenizer, cut.lens.limits, special=special)
    known: list[dict[int, int]] = []
    for prompt in prompts:
        added = prompt.special if special and are_texts(texts) else ()
        known.append(
            {position: prompt.ids[position] for position, mark in enumerate(added) if mark}
        )
    return _Source(prompts, known, [len(prompt) for prompt in prompts])


def _allowed(
    lens: Lens, vocabulary: str | Sequence[str] | None, prompts: list[Prompt]
) -> Tensor | None:
    """Return the mask of the restricted vocabulary; None where there is none."""
    if vocabulary is None:
        return None
    tokenizer = lens.require_tokenizer()
    texts = [vocabulary] if isinstance(vocabulary, str) else list(vocabulary)
    token_ids: set[int] = set()
    for text in texts:
        token_ids.update(tokenizer(text, add_special_tokens=False)["input_ids"])
    if not token_ids:
        raise BadInput("The restricted vocabulary is empty.")
    for prompt in prompts:
        for token in prompt.ids:
            if token not in token_ids:
                raise BadInput(
                    "The restricted vocabulary lacks a token of the prompt: "
                    f"'{display(tokenizer, token)}' (id {token})."
                )
    allowed = torch.zeros(lens.vocabulary_size, dtype=torch.bool, device=lens.device)
    allowed[sorted(token_ids)] = True
    return allowed


def _inverted(
    run: Run, problem: Problem, source: _Source, method: Method, certificate: CertificateName
) -> list[PromptInversion]:
    """Invert all prompts, some together; a resumed run takes up finished ones."""
    entries: list[PromptInversion] = []
    count = len(source.prompts)
    for begin in range(0, count, TOGETHER):
        work = partial(_batch, problem, source, method, certificate, begin)
        entries += run.unit(f"prompts-{begin}", list[PromptInversion], work)
        run.progress("prompts", len(entries), count, "prompts")
    return entries


def _batch(
    problem: Problem, source: _Source, method: Method, certificate: CertificateName, begin: int
) -> list[PromptInversion]:
    """Invert the prompts from `begin` on that are inverted together."""
    part = slice(begin, begin + TOGETHER)
    problem = replace(
        problem,
        targets=problem.targets[part],
        lengths=problem.lengths[part],
        known=problem.known[part],
    )
    if source.leak is None:
        reconstructions = method.solve(problem)
    else:
        problem, reconstructions = solve_unknown(problem, method, source.leak.rounding)
    entries = []
    pairs = zip(source.prompts[part], reconstructions, strict=True)
    for number, (prompt, reconstruction) in enumerate(pairs):
        entry = assess(problem, number, prompt, reconstruction, ask=certificate)
        if source.leak is not None:
            entry = foreign(entry, reconstruction, problem.cut, problem.choice)
        entries.append(entry)
    return entries


def _token_accuracy(entries: list[PromptInversion]) -> float | None:
    """Return the share of tokens recovered; None where the tokens are not known."""
    if not all(entry.tokens for entry in entries):
        return None
    right = 0
    total = 0
    for entry in entries:
        total += len(entry.recovered)
        right += sum(bool(entry.right(position)) for position in range(len(entry.recovered)))
    return right / total
