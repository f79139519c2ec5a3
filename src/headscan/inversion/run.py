"""`invert`: from what a slice of a model gave back to the tokens, with a certificate."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from headscan.inversion.assess import assess, refuse_incomparable
from headscan.inversion.methods import METHODS, Method, Problem
from headscan.inversion.observation import (
    OBSERVATIONS,
    estimated_noise,
    foreign,
    leaked,
    solve_unknown,
)
from headscan.inversion.reconstruction import VERDICTS
from headscan.inversion.result import InvertResult, PromptInversion
from headscan.model.lens import Lens, ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.model.slicing import Slice
from headscan.model.slicing.sliced_model import At
from headscan.run import (
    VERBS,
    BadInput,
    CommandLine,
    Given,
    Option,
    Out,
    Progressing,
    Resume,
    Row,
    Run,
    Seed,
    plain,
    verb,
)
from headscan.run.settings import Overwrite
from headscan.text import display
from headscan.text.prompts import Prompt, PromptsLike, read_prompts


def check(asked: Given) -> None:
    """Raise BadInput where options do not fit together."""
    if (asked["prompt"] is None) == (asked["states"] is None):
        raise BadInput(
            "Say what is inverted: a text with --prompt, or states with --states, and not both."
        )
    if asked["states"] is not None:
        refuse_unused("invert", asked, ["given"], "--states", ["--prompt"])
    if not OBSERVATIONS[asked["given"]].sliced:
        users = [name for name, observation in OBSERVATIONS.items() if observation.sliced]
        refuse_unused("invert", asked, ["at"], f"the given {asked['given']}", users)


def refuse_unused(
    verb: str, values: Mapping[str, object], names: Sequence[str], by: str, users: Sequence[str]
) -> None:
    """Raise BadInput for the first of the options `names` that was given or changed, though `by`
    does not use it.
    """
    stated = values.named if isinstance(values, Given) else frozenset[str]()
    for field in VERBS[verb].options():
        value = values.get(field.name)
        default = field.default
        changed = value is not default and (
            isinstance(value, Tensor | np.ndarray) or value != default
        )
        if field.name in names and (changed or field.name in stated):
            raise BadInput(
                f"{field.flag} is not used by {by}; it belongs to {', '.join(sorted(users))}."
            )


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
        str | os.PathLike[str] | Tensor | np.ndarray[Any, Any] | Mapping[str, Any] | None,
        Option(
            "States that leaked, in place of a prompt: a file, folder or URL of any format that "
            "scan reads (FILE#SITE is one site of it); in Python also an array [T, w] or "
            "[prompts, T, w].",
            content=True,
            metavar="FILE",
            group="Input",
        ),
    ] = None,
    method: Annotated[
        str | Method,
        Option(
            "Method: exact (left to right), joint, indirect or direct.",
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
        Literal["auto", "exhaustive", "sampled"],
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
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> InvertResult:
    """Run a slice on prompts, forget the prompts, and find them again from the output; or take
    states that leaked.

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
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)))
    >>> result = invert(lens, [7, 3, 9])
    >>> result.prompts[0].recovered, result.verdict
    ([7, 3, 9], 'recovered and unique')
    >>> leak = lens.run([[7, 3, 9]], sites="block.0")["block.0"][0]
    >>> invert(lens, states=leak + 1e-3 * leak.norm() / leak.numel() ** 0.5).prompts[0].recovered
    [7, 3, 9]
    """
    asked = Given(locals())
    check(asked)
    wanted: Method = METHODS.build(method) if isinstance(method, str) else method
    place = Slice.parse(at) if isinstance(at, str) else at
    lens = open_model(model, asked.chosen(Loading))
    observation = OBSERVATIONS[given]
    cut = observation.on(lens, place)
    leak = None if states is None else leaked(cut, states)
    if leak is None:
        prompts, known = _prompts(lens, prompt, special=not cut.causal)
        lengths = [len(prompt) for prompt in prompts]
    else:
        prompts, known, lengths = leak.prompts, [{} for _ in leak.prompts], leak.lengths
    for length in lengths:
        cut.kept(length)
    ordered = observation.ordered and cut.slice.pool is None
    chosen = wanted.chosen(cut, lengths, ordered=ordered)
    if certificate == "exhaustive":
        refuse_incomparable(cut, lengths, ordered)
    allowed = _allowed(lens, vocabulary, prompts)
    record = lens.provenance()
    parameters = Row(plain({"method": chosen.name} | asdict(chosen)))  # type: ignore[arg-type]
    lens.identify(run)
    run.identify(
        "the prompts", [list(prompt.ids) for prompt in prompts] if leak is None else leak.sha256
    )
    run.identify("the method", plain(parameters))
    run.identify("the vocabulary", None if allowed is None else allowed.nonzero()[:, 0].tolist())
    if leak is None:
        with torch.no_grad():
            targets = [cut.run([list(prompt.ids)]).float()[0] for prompt in prompts]
    else:
        targets = [target.to(lens.device) for target in leak.targets]
    choice = cut.vocabulary_size if allowed is None else int(allowed.sum())

    def solved(begin: int) -> list[PromptInversion]:
        part = slice(begin, begin + TOGETHER)
        problem = Problem(
            cut=cut,
            targets=targets[part],
            lengths=lengths[part],
            known=known[part],
            allowed=allowed,
            tolerance=tolerance,
            seed=seed,
            progress=run.progress,
        )
        if leak is None:
            solutions = chosen.solve(problem)
        else:
            problem, solutions = solve_unknown(problem, chosen, leak.rounding)
        entries = [
            assess(problem, number, prompt, solution, ask=certificate)
            for number, (prompt, solution) in enumerate(zip(prompts[part], solutions, strict=True))
        ]
        if leak is None:
            return entries
        return [
            foreign(entry, solution, cut, choice)
            for entry, solution in zip(entries, solutions, strict=True)
        ]

    entries = list[PromptInversion]()
    for begin in range(0, len(prompts), TOGETHER):
        entries += run.unit(
            f"prompts-{begin}", list[PromptInversion], lambda begin=begin: solved(begin)
        )  # type: ignore[misc]
        run.progress("prompts", len(entries), len(prompts), "prompts")
    right = sum(
        entry.right(place) or 0 for entry in entries for place in range(len(entry.recovered))
    )
    return InvertResult(
        protocol=run.protocol(device=record.device, dtype=record.dtype),
        models=[record],
        prompts=entries,
        token_accuracy=right / sum(lengths) if all(entry.tokens for entry in entries) else None,
        estimated_noise=None if leak is None else estimated_noise(entries),
        verdict=max((entry.verdict for entry in entries), key=VERDICTS.index),
        slice=cut.slice,
        slice_text=str(cut.slice),
        method=chosen.name,
        parameters=parameters,
        given=given,
        causal=cut.causal,
    )


def _prompts(
    lens: Lens, given: PromptsLike | None, *, special: bool
) -> tuple[list[Prompt], list[dict[int, int]]]:
    """The prompts and, of each, the special tokens that were added, which are known."""
    assert given is not None  # or there are states
    prompts = read_prompts(given, lens.tokenizer, lens.limits, special=special)
    texts = isinstance(given, str) or (
        isinstance(given, Sequence) and all(isinstance(one, str) for one in given)
    )
    marks = [prompt.special if special and texts else () for prompt in prompts]
    pairs = zip(prompts, marks, strict=True)
    return prompts, [
        {place: prompt.ids[place] for place, added in enumerate(mark) if added}
        for prompt, mark in pairs
    ]


def _allowed(
    lens: Lens, vocabulary: str | Sequence[str] | None, prompts: list[Prompt]
) -> Tensor | None:
    if vocabulary is None:
        return None
    tokenizer = lens.require_tokenizer()
    texts = [vocabulary] if isinstance(vocabulary, str) else list(vocabulary)
    ids = {
        token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]
    }
    if not ids:
        raise BadInput("The restricted vocabulary is empty.")
    if missing := [token for prompt in prompts for token in prompt.ids if token not in ids]:
        shown = display(tokenizer, missing[0])
        raise BadInput(
            f"The restricted vocabulary lacks a token of the prompt: '{shown}' (id {missing[0]})."
        )
    allowed = torch.zeros(lens.vocabulary_size, dtype=torch.bool, device=lens.device)
    allowed[sorted(ids)] = True
    return allowed
