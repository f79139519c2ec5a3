"""The geometry of a model that is trained, measured on windows of text between two steps."""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from headscan.model.traits import embedding_table
from headscan.run import Row
from headscan.statistics import Cloud, NonFinite, SiteStatistics, Sums
from headscan.training.heads import Unembedding, body_of, head_of
from headscan.training.learner import Learner
from headscan.training.records import GeometrySnapshot

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
    statistics = {name: SiteStatistics(lens.width(name), device=lens.device) for name in names}
    for start in range(0, len(windows), batch):
        ids = np.ascontiguousarray(windows[start : start + batch])
        rows = torch.from_numpy(ids).long().to(lens.device)
        mask = None
        if attention_mask is not None:
            mask = torch.from_numpy(attention_mask[start : start + batch]).to(lens.device)
        lens.run(
            rows,
            attention_mask=None if mask is None else mask.long(),
            sites=names,
            each=_adder(statistics, start, mask),
        )

    measured = [_site_row(name, site, functions) for name, site in statistics.items()]
    table = Cloud.of_sums(Sums.of_rows(_embedding_rows(lens)))
    cells: dict[str, object] = {"site": "embedding_table"}
    for name, function in functions.items():
        cells[name] = function(table)
    return [*measured, Row(cells)]


def _stream_sites(lens: Lens) -> tuple[str, ...]:
    """Return the sites of the residual stream and its ends, without the head."""
    return tuple(
        site
        for site in lens.sites
        if site != "head" and not site.rpartition(".")[2].startswith(BRANCHES)
    )


def _adder(
    statistics: Mapping[str, SiteStatistics], start: int, mask: Tensor | None
) -> Callable[[str, Tensor], None]:
    """Return a function that adds the states of a batch to the statistics of their site.

    Args:
        start: number of the batch's first window.
        mask: which tokens are no padding.
    """

    def add(site: str, states: Tensor) -> None:
        for windows, real_states in _real_states(site, states, mask):
            try:
                statistics[site].update(real_states, [start + window for window in windows])
            except NonFinite as error:
                raise NonFinite(error.window, error.position, site) from None

    return add


def _site_row(
    name: str, statistics: SiteStatistics, functions: Mapping[str, Callable[[Cloud], object]]
) -> Row:
    all_tokens = Cloud.of_sums(statistics.sums("all"))
    without_first = Cloud.of_sums(statistics.sums("without_first"))
    cells: dict[str, object] = {"site": name}
    for measure, function in functions.items():
        cells[measure] = function(all_tokens)
    cells["dead_share"] = _dead_share(all_tokens)
    for measure, function in functions.items():
        cells[f"{measure}_without_first"] = function(without_first)
    return Row(cells)


def _embedding_rows(lens: Lens) -> Tensor:
    """Return the embedding table [V, d] on a device that has float64: the model's, or the CPU."""
    weights = embedding_table(lens.model).detach()
    if isinstance(weights, DTensor):  # every process has a part
        weights = weights.full_tensor()
    check_finite(weights, "embedding_table")
    return weights.cpu() if weights.device.type == "mps" else weights


def _real_states(
    site: str, states: Tensor, mask: Tensor | None
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield the states [B, T, d] without those of padding: the windows of one number of tokens
    together, with their indices in the batch.
    """
    if mask is None:
        yield list(range(len(states))), states
        return
    if site.startswith("decoder."):
        # The decoder's input stands one position behind the encoder's.
        mask = torch.cat([torch.ones_like(mask[:, :1]), mask[:, :-1]], dim=1)
    counts = mask.sum(1).tolist()
    for count in sorted(set(counts)):
        windows = [window for window, tokens in enumerate(counts) if tokens == count]
        real_states = states[windows][mask[windows]]
        yield windows, real_states.reshape(len(windows), count, -1)


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
    targets = ids[:, 1:].flatten()
    if attention_mask is None:
        states = body_of(model)(ids).last_hidden_state[:, :-1].flatten(0, 1)
    else:
        mask = torch.from_numpy(attention_mask[some]).to(ids.device)
        both_real = (mask[:, :-1] & mask[:, 1:]).flatten()
        last_states = body_of(model)(ids, attention_mask=mask.long()).last_hidden_state
        states = last_states[:, :-1].flatten(0, 1)[both_real]
        targets = targets[both_real]
    model.train(training)
    through = GradientThroughHead(head.rows, bias=head.bias, cap=head.cap)
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
