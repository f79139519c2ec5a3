"""`invert`: from what a slice of a model gave back to the tokens, with a certificate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

import headscan
from headscan.errors import BadInput
from headscan.inversion.assess import Outcome, assess
from headscan.inversion.degrade import add_noise, round_states
from headscan.inversion.descent import Descent, descend, preset
from headscan.inversion.exact import Found, Search, exact, tolerance_of
from headscan.inversion.given import NextToken, Pooled
from headscan.inversion.hidden import exact_hidden
from headscan.inversion.joint import JointSearch, joint
from headscan.inversion.result import InvertResult
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import exhausted
from headscan.text import display

__all__ = ["METHODS", "invert"]

METHODS = ("auto", "exact", "indirect", "direct", "joint")
GIVEN = ("states", "next-token", "embedding")
Progress = Callable[[str, int, int | None], None]


def invert(
    model: str | Lens,
    prompt: str | Sequence[str] | Tensor,
    *,
    at: str | Slice = "block.0",
    method: str = "auto",
    given: str = "states",
    setting: str | Descent | None = None,
    search: Search | None = None,
    together: JointSearch | None = None,
    vocabulary: str | Sequence[str] | None = None,
    noise: float = 0.0,
    rounding: int | None = None,
    jacobian: bool = False,
    special: bool | None = None,
    tokenizer: Any = None,
    seed: int = 0,
    out: Any = None,
    command: str | None = None,
    progress: Progress | None = None,
    **loading: Any,
) -> InvertResult:
    """Run a slice on prompts, forget the prompts, and find them again from the output.

    Args:
        model: a Lens, an embedded specimen, a folder or a Hugging Face id.
        prompt: a text, several texts, or token ids [P, T].
        at: the slice, as a `Slice` or as text: "block.3", "block.3[:, 1:, :]".
        method: "exact" (causal slices; the default there), "joint" (any slice), "indirect" or "direct" (gradients).
        given: "states" (the slice's output), "next-token" (log-probabilities after the prompt) or "embedding" (mean of
            the last site, of unit length). The last two are searched jointly.
        setting: a preset's name or a `Descent`, for the continuous methods.
        search, together: how the exact and the joint method search.
        vocabulary: texts whose tokens alone may be returned.
        noise: Gaussian noise on the output, as a share of each state's norm.
        rounding: round each state to so many bits.
        jacobian: add rank and singular values of the Jacobian to the certificate.
        special: add the tokenizer's special tokens, which count as known; None does so for models without causal mask.
        tokenizer, loading: as for `Lens.load`.
        seed: of noise and random starts.
        out: a folder for the result.
        command: for the protocol.
        progress: called with (name, done, all).

    Returns:
        An `InvertResult`: tokens, certificate and verdict of each prompt.

    Raises:
        BadInput: an empty or too long prompt, a slice without positions for the exact method, a restricted vocabulary
            that lacks a token of the prompt, and whatever `Slice.on` refuses.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)))
    >>> result = invert(lens, torch.tensor([[7, 3, 9]]))
    >>> result.document["recovered"], result.document["verdict"]
    ([7, 3, 9], 'recovered and unique')
    """
    began = time.time()
    if method not in METHODS or given not in GIVEN:
        wrong, choices = (method, METHODS) if method not in METHODS else (given, GIVEN)
        if wrong == "gradient":
            raise BadInput(
                "A gradient shows which tokens were in a batch, not their order: use `headscan.leaked_gradient`."
            )
        raise BadInput(f"There is no way '{wrong}'; choose one of {', '.join(choices)}.")
    if noise < 0 or (rounding is not None and rounding < 2):
        raise BadInput("Noise cannot be negative, and states cannot be rounded to fewer than 2 bits.")
    lens = model if isinstance(model, Lens) else Lens.load(model, tokenizer=tokenizer, **loading)
    cut = _cut(lens, at, given)
    prompts, known = _prompts(lens, cut, prompt, special)
    method = _method(cut, method, given)
    allowed = _allowed(lens, vocabulary, prompts)
    targets = []
    with torch.no_grad():
        for ids in prompts:
            states = cut.run(cut.check(ids[None]))[0].float()
            if noise:
                states = add_noise(states[None], noise, seed)[0]
            targets.append(round_states(states[None], rounding)[0] if rounding else states)
    search = _search(search or Search(seed=seed), cut, targets, noise, rounding)
    tolerance = tolerance_of(cut, search)
    descent = preset(setting) if isinstance(setting, str) else setting
    outcomes = _solve(
        cut, method, targets, prompts, known, search, together or JointSearch(seed=seed), descent, allowed, progress
    )
    entries = [
        assess(cut, ids, target, outcome, tolerance, known_here, method, lens, jacobian)
        for ids, target, outcome, known_here in zip(prompts, targets, outcomes, known, strict=True)
    ]
    document = _document(lens, cut, method, given, entries, search, descent, noise, rounding, vocabulary, seed)
    document["protocol"] |= {"command": command, "started": began, "seconds": time.time() - began}
    result = InvertResult(document)
    if out is not None:
        result.save(out)
    return result


def _cut(lens: Lens, at: str | Slice, given: str) -> SlicedModel:
    if given == "next-token":
        return NextToken(lens)
    if given == "embedding":
        return Pooled(lens)
    return (Slice.parse(at) if isinstance(at, str) else at).on(lens)


def _prompts(
    lens: Lens, cut: SlicedModel, prompt: str | Sequence[str] | Tensor, special: bool | None
) -> tuple[list[Tensor], list[dict[int, int]]]:
    """Token ids of each prompt and, of each, the special tokens, which are known."""
    if isinstance(prompt, Tensor):
        rows = list(prompt if prompt.ndim == 2 else prompt[None])
        if not rows or not rows[0].numel():
            raise BadInput("The prompt is empty.")
        return [cut.check(row[None])[0] for row in rows], [{} for _ in rows]
    texts = [prompt] if isinstance(prompt, str) else list(prompt)
    tokenizer = lens.require_tokenizer()
    special = not cut.causal if special is None else special
    ids, known = [], []
    for text in texts:
        if not text:
            raise BadInput("The prompt is empty.")
        found = tokenizer(text, add_special_tokens=special)["input_ids"]
        if not found:
            raise BadInput(f"The prompt {text!r} has no tokens.")
        marks = set(getattr(tokenizer, "all_special_ids", ()) or ()) if special else set()
        ids.append(cut.check(torch.tensor([found]))[0])
        known.append({place: token for place, token in enumerate(found) if token in marks})
    if not ids:
        raise BadInput("No prompt was given.")
    return ids, known


def _method(cut: SlicedModel, method: str, given: str) -> str:
    pooled = cut.slice.pool is not None
    if method == "auto":
        return "exact" if cut.causal and not pooled and given == "states" else "joint"
    if method == "exact" and (pooled or given != "states"):
        raise BadInput(
            "What is given carries no position (one vector stands for all of them), so it cannot be inverted token by "
            "token: use the method 'joint'."
        )
    return method


def _allowed(lens: Lens, vocabulary: str | Sequence[str] | None, prompts: list[Tensor]) -> Tensor | None:
    if vocabulary is None:
        return None
    tokenizer = lens.require_tokenizer()
    texts = [vocabulary] if isinstance(vocabulary, str) else list(vocabulary)
    ids = {token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]}
    if not ids:
        raise BadInput("The restricted vocabulary is empty.")
    missing = [int(token) for row in prompts for token in row if int(token) not in ids]
    if missing:
        shown = display(tokenizer, missing[0])
        raise BadInput(f"The restricted vocabulary lacks a token of the prompt: '{shown}' (id {missing[0]}).")
    allowed = torch.zeros(lens.vocabulary_size, dtype=torch.bool, device=lens.device)
    allowed[sorted(ids)] = True
    return allowed


def _search(search: Search, cut: SlicedModel, targets: list[Tensor], noise: float, rounding: int | None) -> Search:
    """The tolerance widened by what noise and rounding did: both are known to whoever inverts."""
    if search.tolerance is not None or not (noise or rounding):
        return search
    blur = 1.5 * noise
    if rounding:
        step = max(float(t.abs().amax(-1).div(t.norm(dim=-1).clamp_min(1e-30)).max()) for t in targets)
        blur += step / (2 ** (rounding - 1) - 1) / 2 * targets[0].shape[-1] ** 0.5
    return Search(**(asdict(search) | {"tolerance": max(tolerance_of(cut, search), blur)}))


def _solve(
    cut: SlicedModel,
    method: str,
    targets: list[Tensor],
    prompts: list[Tensor],
    known: list[dict[int, int]],
    search: Search,
    together: JointSearch,
    descent: Descent | None,
    allowed: Tensor | None,
    progress: Progress | None,
) -> list[Outcome]:
    lengths = [len(ids) for ids in prompts]
    if method == "exact":
        if all(cut.kept(length) == list(range(length)) for length in lengths):
            found = exact(cut, targets, search, allowed=allowed, progress=progress)
            return [_of(one, search) for one in found]
        outcomes = []
        for target, length in zip(targets, lengths, strict=True):
            tokens, part, together_part = exact_hidden(
                cut, target, length, search, together, allowed=allowed, progress=progress
            )
            first = together_part["first"]
            outcome = _of(part, search)
            outcome.tokens = tokens
            outcome.evaluations += together_part["evaluations"]
            outcome.rivals = [together_part["rivals"].get(place, []) for place in range(first)] + part.rivals
            outcome.rivals += [[] for _ in range(length - len(outcome.rivals))]
            outcome.margins = [together_part["margin"]] * first + part.margins
            outcome.margins += [float("inf")] * (length - len(outcome.margins))
            outcome.per_token = None
            outcome.exhausted = outcome.exhausted or together_part["exhausted"]
            outcome.checked = "; ".join(words for words in (together_part["checked"], outcome.checked) if words)
            outcomes.append(outcome)
        return outcomes
    if method == "joint":
        outcomes = []
        for target, length, fixed in zip(targets, lengths, known, strict=True):
            one = joint(
                cut,
                target,
                length,
                together,
                known=fixed,
                tolerance=tolerance_of(cut, search),
                allowed=allowed,
                progress=progress,
            )
            outcomes.append(
                Outcome(
                    one.tokens.tolist(),
                    one.evaluations,
                    one.rivals,
                    [one.margin] * length,
                    None,
                    one.checked,
                    not one.exhausted,
                    tuple(one.notes),
                )
            )
        return outcomes
    settings = descent or Descent(method=method)
    if settings.method != method:
        settings = Descent(**(asdict(settings) | {"method": method}))
    outcomes = [Outcome([], 0) for _ in targets]
    for length in sorted(set(lengths)):
        rows = [row for row, one in enumerate(lengths) if one == length]
        _descend_rows(cut, targets, rows, length, settings, allowed, progress, outcomes)
    return outcomes


def _descend_rows(
    cut: SlicedModel,
    targets: list[Tensor],
    rows: list[int],
    length: int,
    settings: Descent,
    allowed: Tensor | None,
    progress: Progress | None,
    outcomes: list[Outcome],
) -> None:
    """Descend prompts of one length in a batch; when memory runs out, in batches of half the size."""
    size, begin = len(rows), 0
    notes: tuple[str, ...] = ()
    while begin < len(rows):
        part = rows[begin : begin + size]
        target = torch.stack([targets[row] for row in part])
        try:
            found = descend(cut, target, length, settings, allowed=allowed, progress=progress)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not exhausted(error):
                raise
            if size == 1:
                raise BadInput(
                    "Memory runs out even for a single prompt: use a shorter prompt, fewer restarts or a smaller model."
                ) from error
            size //= 2
            notes = (f"Memory ran out with {len(rows)} prompts together; {size} are descended at a time.",)
            continue
        for place, row in enumerate(part):
            outcomes[row] = Outcome(
                found.tokens[place].tolist(), found.steps, notes=notes, passes=found.passes // len(part),
                top=found.top[place].tolist(),
            )  # fmt: skip
        begin += size


def _of(found: Found, search: Search) -> Outcome:
    tried = "every token" if search.neighbours is None else f"the {search.neighbours} tokens predicted nearest"
    return Outcome(
        found.tokens,
        sum(found.evaluations),
        found.rivals,
        found.margins,
        found.evaluations,
        f"at each position {tried}, and all tried on the way",
        bool(found.failed) and not found.exhausted,
        tuple(found.notes),
        found.passes,
    )


def _document(
    lens: Lens,
    cut: SlicedModel,
    method: str,
    given: str,
    entries: list[dict],
    search: Search,
    descent: Descent | None,
    noise: float,
    rounding: int | None,
    vocabulary: Any,
    seed: int,
) -> dict[str, Any]:
    order = ["recovered and unique", "recovered, not unique", "information absent", "search exhausted its budget"]
    several = len(entries) > 1
    fields = ("tokens", "recovered", "certificate", "evaluations")
    document: dict[str, Any] = {name: [e[name] for e in entries] if several else entries[0][name] for name in fields}
    right = sum(a == b for e in entries for a, b in zip(e["tokens"], e["recovered"], strict=True))
    return document | {
        "headscan": headscan.__version__,
        "token_accuracy": right / sum(len(e["tokens"]) for e in entries),
        "verdict": max((e["verdict"] for e in entries), key=order.index),
        "slice": cut.slice.document(),
        "slice_text": str(cut.slice),
        "method": method,
        "given": given,
        "models": [asdict(lens.provenance())],
        "prompts": entries,
        "protocol": {
            "search": asdict(search),
            "descent": asdict(descent) if descent else None,
            "noise": noise,
            "rounding": rounding,
            "vocabulary": vocabulary,
            "seed": seed,
            "causal": cut.causal,
            "versions": {"torch": torch.__version__},
        },
    }
