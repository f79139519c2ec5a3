"""Attention drift: the directions that a head's queries and keys share, with which it can be sharp
without looking at the token.

Godey et al. 2024 (arXiv:2401.12143): during training the mean query and mean key of a head grow and
align (or oppose) each other, scores get a common offset, and attention sharpens. Here: per head,
from one pass, for every model whose attention goes through transformers' attention interface (most
of them).
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.model import Lens
from headscan.run import BadInput
from headscan.statistics import Tally
from headscan.statistics.uncertainty import Bounds, Cells, with_intervals
from headscan.text.tokens import NO_FRAME, Frame

NO_MEAN = "its queries or keys are zero on average"

NAME = "headscan-heads"
BOUNDS: dict[str, Bounds] = {
    "query_norm": (0.0, None),
    "key_norm": (0.0, None),
    "query_drift": (0.0, 1.0),
    "key_drift": (0.0, 1.0),
    "drift_cosine": (-1.0, 1.0),
    "attention_entropy": (0.0, None),
    "sharpness": (0.0, 1.0),
    "first_share": (0.0, 1.0),
    "added_share": (0.0, 1.0),
}
"""The ranges of the numbers of a head."""

ATTENTION_TOKENS = 4096
"""The number of tokens that the probe reads."""


@contextmanager
def watch_heads(lens: Lens) -> Iterator[dict[int, Tally]]:
    """Add every attention call of the model to a tally of its layer, within a context.

    The tallies are by the order of the layers' calls. Attention then runs with an explicit mask
    through torch's `scaled_dot_product_attention`, which may move outputs in the last digits.
    Raises BadInput for a model whose attention does not go through transformers' interface.
    """
    # These take two seconds to import, which a scan of stored states does not need.
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import eager_mask

    tallies: dict[int, Tally] = {}
    layers: dict[int, int] = {}

    def attend(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        layer = layers.setdefault(id(module), len(layers))
        causal = getattr(module, "is_causal", False)
        scores = _scores(query, key, attention_mask, options.get("scaling"), causal)
        if layer not in tallies:
            tallies[layer] = _empty_tally(query.shape[1], query.shape[3])
        _add(tallies[layer], query, key, scores, lens.frame)
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, eager_mask)
    previous_implementation = lens.model.config._attn_implementation
    try:
        lens.model.set_attn_implementation(NAME)
        yield tallies
    except ValueError as error:
        raise BadInput(f"The attention of {lens.name} cannot be watched: {error}") from None
    finally:
        lens.model.set_attn_implementation(previous_implementation)


def _repeated(key: Tensor, heads: int) -> Tensor:
    """Return the key of each of the query's heads; K divides H (grouped queries)."""
    return key.detach().float().repeat_interleave(heads // key.shape[1], dim=1)


def _scores(
    query: Tensor, key: Tensor, mask: Tensor | None, scaling: float | None, causal: bool
) -> Tensor:
    """Return the masked scores [B, H, T, S] of queries [B, H, T, e] and keys [B, K, S, e]."""
    _, heads, length, width = query.shape
    q = query.detach().float()
    k = _repeated(key, heads)
    scores = q @ k.transpose(-1, -2) * (width**-0.5 if scaling is None else scaling)
    if mask is not None:
        if mask.dtype == torch.bool:
            return scores.masked_fill(~mask, -torch.inf)
        return scores + mask.float()
    if causal:
        ones = torch.ones(length, key.shape[2], dtype=torch.bool, device=q.device)
        hidden = ones.triu(key.shape[2] - length + 1)
        return scores.masked_fill(hidden, -torch.inf)
    return scores


def _empty_tally(heads: int, width: int) -> Tally:
    """Return a tally of one layer's heads."""
    names = (
        "query_norm",
        "key_norm",
        "entropy",
        "sharpness",
        "first",
        "added",
        "positions",
        "choices",
    )
    vectors = {"query": (heads, width), "key": (heads, width)}
    return Tally(vectors | dict.fromkeys(names, (heads,)))


def _add(tally: Tally, query: Tensor, key: Tensor, scores: Tensor, frame: Frame = NO_FRAME) -> None:
    """Add queries [B, H, T, e], keys [B, K, S, e] and masked scores [B, H, T, S] of one call.

    Only those of the text count; what its queries give to the added positions is a number of its
    own.
    """
    queries = frame.text(query.shape[2])
    keys = frame.text(key.shape[2])
    q = query[:, :, queries].detach().float().double()
    batch, heads, length, _ = q.shape
    k = _repeated(key[:, :, keys], heads).double()
    scores = scores[:, :, queries]
    logs = torch.log_softmax(scores, dim=-1)
    shares = logs.exp()
    entropy = -torch.where(shares > 0, shares * logs, 0.0).sum(-1).double()  # [B, H, T]
    allowed = scores > torch.finfo(scores.dtype).min / 2
    visible = allowed.sum(-1).double()
    choice = visible > 1
    added = shares[..., : keys.start].sum(-1) + shares[..., keys.stop :].sum(-1)
    sharpness = 1 - entropy / visible.clamp(min=2).log()
    sums = {
        "query": q.sum((0, 2)),
        "key": k.sum((0, 2)),
        "query_norm": torch.linalg.vector_norm(q, dim=-1).sum((0, 2)),
        "key_norm": torch.linalg.vector_norm(k, dim=-1).sum((0, 2)),
        "entropy": entropy.sum((0, 2)),
        "sharpness": torch.where(choice, sharpness, 0.0).sum((0, 2)),
        "first": torch.where(choice, shares[..., 0].double(), 0.0).sum((0, 2)),
        "added": added.double().sum((0, 2)),
        "positions": torch.full((heads,), float(batch * length)),
        "choices": choice.double().sum((0, 2)),
    }
    for name, value in sums.items():
        tally[name] = tally[name] + value.cpu()


def watched(
    lens: Lens, batches: Iterable[Tensor]
) -> tuple[dict[int, Tally], list[dict[int, Tally]]]:
    """Return the tallies of `watch_heads` of all batches of ids [B, T] together, and of each batch.

    Cost: one forward pass. Raises BadInput for a model without attention that can be watched.
    """
    deepest = lens.match("**block.*" if len(lens.stacks) > 1 else "block.*")[-1]
    parts: list[dict[int, Tally]] = []
    for ids in batches:
        with watch_heads(lens) as tallies:
            lens.run(ids, sites=deepest, each=_pass_over)
        parts.append(tallies)
    if not any(parts):
        raise BadInput(f"{lens.name} has no attention that transformers' attention interface runs.")
    total = {layer: Tally.restore(tally.state()) for layer, tally in parts[0].items()}
    for part in parts[1:]:
        for layer, tally in part.items():
            total[layer].merge(tally)
    return total, parts


def _pass_over(_site: str, _states: Tensor) -> None:
    """Do nothing with the states of a site."""


def head_rows(tallies: dict[int, Tally]) -> list[Cells]:
    """Return one row for each layer and head, from the tallies of `watch_heads`.

        query_norm, key_norm: the norm of the mean query and of the mean key, in the units of the
            scores' factors;
        query_drift, key_drift: ‖mean‖/mean norm of queries and of keys, in [0, 1];
        drift_cosine: cosine between the mean query and the mean key, in [−1, 1]; near ±1 with large
            drifts, scores have a common offset, positive or negative;
        attention_entropy: mean over positions of the entropy of the attention weights, nats, from
            0;
        sharpness: mean of 1 − entropy/log(visible positions), in [0, 1], over positions that see
            more than one;
        first_share: mean weight on position 0, over the same positions (an attention sink);
        added_share: mean weight on the positions that were added around the text, which are in no
            other number but position 0 in `first_share`; 0 where nothing was added.

    Queries and keys are those that are multiplied: after rotary or other position maps.
    """
    rows: list[Cells] = []
    for layer, tally in sorted(tallies.items()):
        n = tally["positions"]
        choices = tally["choices"].clamp(min=1)
        mean_query = tally["query"] / n[:, None]
        mean_key = tally["key"] / n[:, None]
        query_norm = torch.linalg.vector_norm(mean_query, dim=-1)
        key_norm = torch.linalg.vector_norm(mean_key, dim=-1)
        columns = {
            "query_norm": query_norm,
            "key_norm": key_norm,
            "query_drift": query_norm * n / tally["query_norm"],
            "key_drift": key_norm * n / tally["key_norm"],
            "drift_cosine": (mean_query * mean_key).sum(-1) / (query_norm * key_norm),
            "attention_entropy": tally["entropy"] / n,
            "sharpness": tally["sharpness"] / choices,
            "first_share": tally["first"] / choices,
            "added_share": tally["added"] / n,
        }
        for head in range(len(n)):
            row: Cells = {"site": f"block.{layer}.attention", "head": head}
            for name, column in columns.items():
                value = float(column[head])
                row[name] = value if math.isfinite(value) else None
            rows.append(row)
    return rows


def attention_drift(lens: Lens, batches: Iterable[Tensor]) -> list[Cells]:
    """Return `head_rows` of one pass of the model over batches of ids [B, T].

    From three batches on, each number has a 95 % interval, NAME_interval: each batch is left out by
    turns. Cost: the forward pass and one more T x T product.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config))
    >>> rows = attention_drift(lens, [torch.arange(12).reshape(1, 12)])
    >>> len(rows), rows[3]["site"], rows[3]["head"]
    (4, 'block.1.attention', 1)
    """
    total, parts = watched(lens, batches)
    left_out: list[list[Cells]] = []
    if len(parts) > 2:
        for part in parts:
            remaining = {layer: total[layer].without(part[layer]) for layer in part}
            left_out.append(head_rows(remaining))
    sizes = [float(part[min(part)]["positions"][0]) for part in parts]

    rows: list[Cells] = []
    for k, row in enumerate(head_rows(total)):
        rows_without = [batch_rows[k] for batch_rows in left_out]
        rows.append(row | with_intervals(row, rows_without, sizes, BOUNDS))
    return rows


class AttentionProbe(Probe):
    """Mean queries and keys of every head, and how sharp its attention is."""

    words = ProbeWords(
        name="attention",
        title="Attention drift",
        group="attention",
        sentence="Do a head's queries and keys share directions, and how sharp is its attention? "
        "Over the first 4096 tokens.",
        literature="Godey et al. 2024, arXiv:2401.12143",
        position="Positions that see one token only count in drifts and entropy, not in sharpness "
        "and the weight on position 0, which is the measure of position 0 itself.",
        docs="attention.md",
        function="headscan.measures.attention.head_rows",
        picture="heads",
        order=18,
        fields={
            "head": Field(
                "head", "Number of the head.", range=(0, None), interval="a number of a head"
            ),
            "query_norm": Field(
                "norm of mean query",
                "Length of the head's mean query; it grows in training where attention sharpens "
                "by drift.",
                "‖q̄‖",
                range=(0, None),
                undefined="no position",
            ),
            "key_norm": Field(
                "norm of mean key",
                "Length of the head's mean key.",
                "‖k̄‖",
                range=(0, None),
                undefined="no position",
            ),
            "query_drift": Field(
                "query drift",
                "Norm of the mean query over the mean norm.",
                "‖Σq‖/Σ‖q‖",
                range=(0, 1),
                undefined=NO_MEAN,
            ),
            "key_drift": Field(
                "key drift",
                "Norm of the mean key over the mean norm.",
                "‖Σk‖/Σ‖k‖",
                range=(0, 1),
                undefined=NO_MEAN,
            ),
            "drift_cosine": Field(
                "drift cosine",
                "Cosine between the mean query and the mean key.",
                "cos(q̄, k̄)",
                range=(-1, 1),
                undefined=NO_MEAN,
                plotted=True,
            ),
            "attention_entropy": Field(
                "attention entropy",
                "Of the weights, averaged over positions.",
                "−Σ a log a",
                range=(0, None),
                unit="nats",
            ),
            "sharpness": Field(
                "sharpness",
                "1 − entropy/log(visible positions): 0 uniform, 1 on one position.",
                range=(0, 1),
                plotted=True,
            ),
            "first_share": Field(
                "weight on position 0",
                "An attention sink where near 1; the start token, where one is added.",
                range=(0, 1),
                plotted=True,
            ),
            "added_share": Field(
                "weight on added positions",
                "Attention that the start tokens (and the end tokens) of windows receive.",
                range=(0, 1),
            ),
        },
    )

    def reason(self, setup: ProbeSetup) -> str | None:
        parts = (site.rsplit(".", 1)[-1] for site in setup.lens.sites)
        return None if "attention" in parts else "it has no attention"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        ids = data.windows[: max(1, ATTENTION_TOKENS // setup.context)].to(setup.lens.device)
        parts = max(min(8, len(ids)), len(ids) * setup.context // 2048)
        try:
            return attention_drift(setup.lens, ids.tensor_split(parts))
        except BadInput as error:
            return [{"site": "attention", "notes": [str(error)], **dict.fromkeys(self.fields)}]
