"""The geometry of a model that is trained, measured on windows of text between two steps."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor
from torch.distributed.tensor import DTensor

from headscan.measures.kept_gradient import GradientThroughHead, KeptGradient
from headscan.measures.measure import MEASURES
from headscan.model import Lens
from headscan.model.inputs import without_cache
from headscan.run import Row
from headscan.statistics import Cloud, NonFinite
from headscan.training.heads import Unembedding, body_of, head_of
from headscan.training.learner import Learner
from headscan.training.records import GeometrySnapshot
from headscan.training.window_sums import Mask, Tokens, WindowSums, clouds_of

GRADIENT_TOKENS = 512
"""Tokens whose gradients are measured."""

BATCH = 8
"""Windows of a forward pass on a CPU."""

TOKENS_ON_DEVICES = 16_384
"""Tokens of a forward pass elsewhere, where many small steps take longer than few large ones."""

DEFAULT = ("average_cosine", "top_direction_share", "effective_rank", "alpha_req", "mean_norm")
"""Measures that a training takes by default."""

BRANCHES = ("attention", "mlp", "mixer")
"""Parts of a block that write to the residual stream; they are no part of it."""

DEAD_VARIANCE = 1e-6
"""A coordinate with a smaller share of the mean variance does not tell tokens apart."""


def measure_sites(
    lens: Lens,
    windows: npt.NDArray[np.integer],
    *,
    sites: str | Iterable[str] | None = None,
    measures: Iterable[str] = DEFAULT,
    batch: int | None = None,
    attention_mask: npt.NDArray[np.bool_] | None = None,
) -> list[Row]:
    """Return measures of each site over windows int [n, context]: one row a site, in the order of
    depth.

    batch: windows of a forward pass; None: as suits the device. attention_mask [n, context]: which
    tokens are no padding; states of padding are in no number,
    and position 0 is the first token that is no padding.

    The head is left out unless `sites` names it. Every measure comes with a companion
    NAME_without_first, that leaves position 0 of each window out, and `dead_share` is the share of
    coordinates whose variance is under 1e-6 of the mean one: they are the same for every token. The
    embedding *table* itself, one row a token, is the last entry, "embedding_table". Raises BadInput
    for a measure or site that is not there, and `NonFinite`, with the site, for states that are not
    finite.
    """
    functions = {name: MEASURES[name] for name in measures}
    if batch is None:
        on_cpu = lens.device.type == "cpu"
        batch = BATCH if on_cpu else max(BATCH, TOKENS_ON_DEVICES // windows.shape[1])
    names = lens.match(sites) if sites else _stream_sites(lens)
    device = torch.device("cpu") if lens.device.type == "mps" else lens.device  # has no float64
    sums = {name: WindowSums(lens.width(name), device) for name in names}
    for start in range(0, len(windows), batch):
        rows = torch.from_numpy(np.ascontiguousarray(windows[start : start + batch])).long()
        real = np.ones(rows.shape, dtype=bool)
        mask = None
        if attention_mask is not None:
            real = attention_mask[start : start + batch]
            mask = torch.from_numpy(real).long()
        first_token = start * windows.shape[1]
        each = _adder(sums, Tokens.of(real, device, first_token), real, first_token)
        lens.run(rows, attention_mask=mask, sites=names, each=each)
    table = WindowSums(lens.input_embeddings.shape[1], device)
    _add_rows(table, lens.input_embeddings)

    spectral = any(function.spectral for function in functions.values())
    measured = []
    for name, clouds in clouds_of(sums, windows.shape[1], spectral=spectral):
        measured.append(_site_row(name, clouds[0], clouds[-1], functions))
    [(name, [table_cloud])] = clouds_of({"embedding_table": table}, 1, spectral=spectral)
    cells: dict[str, object] = {"site": name}
    for measure, function in functions.items():
        cells[measure] = function(table_cloud)
    return [*measured, Row(cells)]


def _stream_sites(lens: Lens) -> tuple[str, ...]:
    """Return the sites of the residual stream and its ends, without the head."""
    return tuple(
        site
        for site in lens.sites
        if site != "head" and not site.rpartition(".")[2].startswith(BRANCHES)
    )


def _adder(
    sums: Mapping[str, WindowSums], tokens: Tokens, real: Mask, start: int
) -> Callable[[str, Tensor], None]:
    """Return a function that adds the states of a batch to the sums of their site.

    Args:
        tokens, real: the tokens of the batch, and which of them are no padding.
        start: the index of the batch's first token among those of all windows.
    """
    device = tokens.first.device
    of_decoder = tokens
    if not real.all():
        # The decoder's input stands one position behind the encoder's.
        shifted = np.roll(real, 1, axis=1)
        shifted[:, 0] = True
        of_decoder = Tokens.of(shifted, device, start)

    def add(site: str, states: Tensor) -> None:
        sums[site].update(states, of_decoder if site.startswith("decoder.") else tokens)

    return add


def _site_row(
    name: str,
    all_tokens: Cloud,
    without_first: Cloud,
    functions: Mapping[str, Callable[[Cloud], object]],
) -> Row:
    cells: dict[str, object] = {"site": name}
    for measure, function in functions.items():
        cells[measure] = function(all_tokens)
    cells["dead_share"] = _dead_share(all_tokens)
    for measure, function in functions.items():
        cells[f"{measure}_without_first"] = function(without_first)
    return Row(cells)


def _add_rows(sums: WindowSums, table: Tensor) -> None:
    """Add the rows of an embedding table [V, d]."""
    rows = table.detach()
    if isinstance(rows, DTensor):  # every process has a part
        rows = rows.full_tensor()
    numbers = torch.arange(len(rows), device=sums.device)
    sums.update(rows, Tokens(numbers[:0], numbers))


def check_finite(rows: Tensor, site: str) -> None:
    """Raise `NonFinite` where a row of a matrix of weights is not finite."""
    broken = ~torch.isfinite(rows).all(1)
    if bool(broken.any()):
        raise NonFinite(int(broken.nonzero()[0]), 0, site)


def _dead_share(cloud: Cloud) -> float:
    variances = cloud.variances
    mean = max(float(variances.mean()), 1e-300)
    return float((variances < DEAD_VARIANCE * mean).mean())


def snapshot_of(line: Mapping[str, Any]) -> GeometrySnapshot:
    """Return a measurement from its line of geometry.jsonl."""
    gradient = line.get("gradient")
    return GeometrySnapshot(
        step=line["step"],
        sites=[Row(row) for row in line["sites"]],
        gradient=KeptGradient(**gradient) if gradient else None,
    )


@torch.no_grad()
def gradient_through_head(
    model: Any,
    learner: Learner | None,
    windows: npt.NDArray[np.integer],
    counts: Int[Tensor, " vocabulary"] | None,
    attention_mask: npt.NDArray[np.bool_] | None = None,
) -> KeptGradient | None:
    """Return the part of the logits' gradient that passes the head of a model that predicts the
    next token; None for other models. Padding is left out.
    """
    head = _next_token_head(model, learner, counts)
    if head is None:
        return None
    check_finite(head.rows, "head")
    training = model.training
    model.eval()
    some = slice(0, max(1, GRADIENT_TOKENS // windows.shape[1]))
    ids = torch.from_numpy(np.ascontiguousarray(windows[some])).long().to(head.rows.device)
    real = np.ones(ids.shape, dtype=bool) if attention_mask is None else attention_mask[some]
    inputs = {"input_ids": ids}
    if attention_mask is not None:
        inputs["attention_mask"] = torch.from_numpy(real).long().to(ids.device)
    states = body_of(model)(**inputs, **without_cache(body_of(model))).last_hidden_state
    model.train(training)
    both_real = real[:, :-1] & real[:, 1:]
    followed = torch.from_numpy(np.flatnonzero(both_real)).to(ids.device)
    states = states[:, :-1].flatten(0, 1)[followed]
    targets = ids[:, 1:].flatten()[followed]
    # No more tokens than directions have no best directions, and need not be kept.
    best = len(targets) > min(head.rows.shape)
    through = GradientThroughHead(head.rows, bias=head.bias, cap=head.cap, best=best)
    through.update(head.transform(states), targets)
    return through.result()


def _next_token_head(
    model: Any, learner: Learner | None, counts: Tensor | None
) -> Unembedding | None:
    """Return the head by which a model predicts the next token; None where it does not."""
    if learner is not None:
        return None if learner.masked else learner.readout(counts)
    if type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        return head_of(model)
    return None
