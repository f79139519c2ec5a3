"""The geometry of a model that is trained, measured on windows of text between two steps."""

from collections.abc import Iterable, Iterator, Mapping
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
from headscan.statistics import Cloud, NonFinite, SiteStatistics
from headscan.training.heads import body_of, head_of
from headscan.training.learner import Learner
from headscan.training.objective import GeometrySnapshot

GRADIENTS = 512  # tokens whose gradients are measured
DEFAULT = ("average_cosine", "top_direction_share", "effective_rank", "alpha_req", "mean_norm")


def measure_sites(
    lens: Lens,
    windows: npt.NDArray[np.integer],
    *,
    sites: str | Iterable[str] | None = None,
    measures: Iterable[str] = DEFAULT,
    batch: int = 8,
    attention_mask: npt.NDArray[np.bool_] | None = None,
) -> list[Row]:
    """Measures of each site over windows int [n, context]: one row a site, in the order of depth.

    attention_mask [n, context]: which tokens are no padding; states of the others are in no number,
    and position 0 is the first token that is no padding.

    The head is left out unless asked for. Every measure comes with a companion NAME_without_first,
    that leaves position 0 of each window out, and `dead_share` is the share of coordinates whose
    variance is under 1e-6 of the mean one: they are the same for every token. The embedding *table*
    itself, one row a token, is the last entry, "embedding_table". Raises BadInput for a measure or
    site that is not there, and `NonFinite`, with the site, for states that are not finite.
    """
    chosen = {name: MEASURES[name] for name in measures}
    apart = ("attention", "mlp", "mixer")  # what writes to the residual stream
    stream = (
        site
        for site in lens.sites
        if site != "head" and not site.rpartition(".")[2].startswith(apart)
    )
    names = lens.match(sites) if sites else tuple(stream)
    kept = {name: SiteStatistics(lens.width(name), device=lens.device) for name in names}
    for start in range(0, len(windows), batch):
        rows = (
            torch.from_numpy(np.ascontiguousarray(windows[start : start + batch]))
            .long()
            .to(lens.device)
        )
        mask = (
            None
            if attention_mask is None
            else torch.from_numpy(attention_mask[start : start + batch]).to(lens.device)
        )

        def take(
            site: str, states: torch.Tensor, start: int = start, mask: torch.Tensor | None = mask
        ) -> None:
            for places, real in _real_states(site, states, mask):
                try:
                    kept[site].update(real, [start + place for place in places])
                except NonFinite as error:
                    raise NonFinite(error.window, error.position, site) from None

        lens.run(rows, attention_mask=None if mask is None else mask.long(), sites=names, each=take)
    found = []
    for name, statistics in kept.items():
        everything, later = (
            Cloud.of_sums(statistics.sums(group)) for group in ("all", "without_first")
        )
        cells: dict[str, object] = {"site": name} | {
            measure: of(everything) for measure, of in chosen.items()
        }
        cells["dead_share"] = _dead_share(everything)
        found.append(
            Row(cells | {f"{measure}_without_first": of(later) for measure, of in chosen.items()})
        )
    weights = embedding_table(lens.model).detach()
    # sharded: every process has a part
    weights = weights.full_tensor() if isinstance(weights, DTensor) else weights
    check_finite(weights, "embedding_table")
    table = Cloud.of_rows(weights.double().cpu().numpy())
    return [
        *found,
        Row({"site": "embedding_table"} | {measure: of(table) for measure, of in chosen.items()}),
    ]


def _real_states(
    site: str, states: Tensor, mask: Tensor | None
) -> Iterator[tuple[list[int], Tensor]]:
    """The states [B, T, d] without those of padding: windows of one number of tokens together, with
    their places.
    """
    if mask is None:
        yield list(range(len(states))), states
        return
    if site.startswith("decoder."):  # whose input stands one place behind the encoder's
        mask = torch.cat([torch.ones_like(mask[:, :1]), mask[:, :-1]], dim=1)
    counts = mask.sum(1).tolist()
    for count in sorted(set(counts)):
        places = [place for place, tokens in enumerate(counts) if tokens == count]
        yield places, states[places][mask[places]].reshape(len(places), count, -1)


def check_finite(rows: Tensor, site: str) -> None:
    """Raise `NonFinite` where a row of a matrix of weights is not finite."""
    broken = ~torch.isfinite(rows).all(1)
    if bool(broken.any()):
        raise NonFinite(int(broken.nonzero()[0]), 0, site)


def _dead_share(cloud: Cloud) -> float:
    spread = cloud.covariance.diagonal()
    return float((spread < 1e-6 * max(float(spread.mean()), 1e-300)).mean())


def snapshot_of(line: Mapping[str, Any]) -> GeometrySnapshot:
    """A measurement from its line of geometry.jsonl."""
    gradient = KeptGradient(**found) if (found := line.get("gradient")) else None
    return GeometrySnapshot(
        step=line["step"], sites=[Row(row) for row in line["sites"]], gradient=gradient
    )


@torch.no_grad()
def gradient_through_head(
    model: Any,
    learner: Learner | None,
    windows: npt.NDArray[np.integer],
    counts: Int[Tensor, " vocabulary"] | None,
    attention_mask: npt.NDArray[np.bool_] | None = None,
) -> KeptGradient | None:
    """Through the head of a model that predicts the next token; None of any other. Padding is left
    out.
    """
    head = None
    if learner is not None:
        head = None if learner.masked else learner.readout(counts)
    elif type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        head = head_of(model)
    if head is None:
        return None
    check_finite(head.rows, "head")
    training = model.training
    model.eval()
    some = slice(0, max(1, GRADIENTS // windows.shape[1]))
    ids = torch.from_numpy(np.ascontiguousarray(windows[some])).long().to(head.rows.device)
    targets = ids[:, 1:].flatten()
    if attention_mask is None:
        states = body_of(model)(ids).last_hidden_state[:, :-1].flatten(0, 1)
    else:
        mask = torch.from_numpy(attention_mask[some]).to(ids.device)
        both = (mask[:, :-1] & mask[:, 1:]).flatten()
        states = (
            body_of(model)(ids, attention_mask=mask.long())
            .last_hidden_state[:, :-1]
            .flatten(0, 1)[both]
        )
        targets = targets[both]
    model.train(training)
    through = GradientThroughHead(head.rows, bias=head.bias, cap=head.cap)
    through.update(head.transform(states), targets)
    return through.result()
