"""The shape of the representations while a model trains: a callback for any transformers Trainer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from headscan.errors import BadInput
from headscan.geometry import MEASURES
from headscan.model import Lens
from headscan.statistics import Cloud, NonFinite, SiteStatistics

__all__ = ["GeometryCallback", "measure_sites"]

log = logging.getLogger(__name__)
DEFAULT = ("average_cosine", "top_direction_share", "effective_rank", "mean_norm")


def measure_sites(
    lens: Lens,
    windows: np.ndarray,
    *,
    sites: str | Iterable[str] | None = None,
    measures: Iterable[str] = DEFAULT,
    batch: int = 8,
) -> list[dict[str, Any]]:
    """Measures of each site over windows int [n, context]: one entry a site, in the order of depth.

    The head is left out unless asked for. Every measure comes with a companion NAME_without_first, that leaves
    position 0 of each window out. The embedding *table* itself, one row a token, is the last entry, "embedding_table".
    """
    unknown = [name for name in measures if name not in MEASURES]
    if unknown:
        raise BadInput(f"There is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}.")
    names = lens.match(sites) if sites else tuple(s for s in lens.sites if s != "head" and _is_stream(s))
    kept = {name: SiteStatistics(lens.width(name), device=lens.device) for name in names}
    for start in range(0, len(windows), batch):
        rows = torch.from_numpy(np.ascontiguousarray(windows[start : start + batch])).long().to(lens.device)
        numbers = list(range(start, start + len(rows)))

        def take(site: str, states: torch.Tensor, at: list[int] = numbers) -> None:
            kept[site].update(states, at)

        lens.run(rows, sites=names, each=take)
    entries = []
    for name, statistics in kept.items():
        entry: dict[str, Any] = {"site": name}
        for suffix, sums in (("", statistics.all), ("_without_first", statistics.without_first)):
            cloud = Cloud.of_sums(sums)
            entry |= {measure + suffix: MEASURES[measure](cloud) for measure in measures}
        entries.append(entry)
    table = Cloud.of_rows(lens.input_embeddings.detach().double().cpu().numpy())
    entries.append({"site": "embedding_table"} | {measure: MEASURES[measure](table) for measure in measures})
    return entries


def _is_stream(site: str) -> bool:
    """The residual stream and the ends of it, not the branches that feed it."""
    return not site.rpartition(".")[2].startswith(("attention", "mlp", "mixer"))


class GeometryCallback(TrainerCallback):
    """Measure the geometry of every site as training goes on. Add it to any `transformers.Trainer`:

        Trainer(..., callbacks=[GeometryCallback(windows, every=100)])

    windows: int [n, context], the text to measure on (held out, if it is to mean anything). every: steps between two
    measurements; it also measures before the first step and after the last. `history` is a list of
    {"step", "sites": [...]}; the same goes, line by line, to geometry.jsonl in the run's folder, and to TensorBoard
    where the Trainer reports to it. Training is not touched: modes and random states are as before.

    Cost: one forward pass over the windows each time, and a Gram matrix a site.
    """

    def __init__(self, windows: np.ndarray, *, every: int = 100, sites: str | None = None, measures=DEFAULT):
        if every < 1:
            raise BadInput(f"The geometry is measured every 1 step or more, not every {every}.")
        self.windows, self.every, self.sites, self.measures = windows, every, sites, tuple(measures)
        self.history: list[dict[str, Any]] = []
        self._lens: Lens | None = None

    def on_train_begin(self, args, state, control, model=None, **_):
        """Measure the model as it comes; after a resumption, take up the history up to that step."""
        path = Path(args.output_dir) / "geometry.jsonl"
        if state.global_step and path.exists():
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            self.history = [line for line in lines if line["step"] <= state.global_step]
        self._write(args, state)
        if not any(entry["step"] == state.global_step for entry in self.history):
            self._measure(args, state, model)

    def on_step_end(self, args, state, control, model=None, **_):
        """Measure where the step is due."""
        if state.global_step % self.every == 0:
            self._measure(args, state, model)

    def on_train_end(self, args, state, control, model=None, **_):
        """Measure the finished model."""
        if not self.history or self.history[-1]["step"] != state.global_step:
            self._measure(args, state, model)

    def _measure(self, args, state, model) -> None:
        if not state.is_world_process_zero:
            return
        inner = getattr(model, "module", model)  # DDP
        inner = getattr(inner, "model", inner) if type(inner).__name__ == "Learner" else inner
        if self._lens is None or self._lens.model is not inner:
            with torch.random.fork_rng():
                self._lens = Lens(inner, name="training")
        try:
            with torch.random.fork_rng():
                entries = measure_sites(self._lens, self.windows, sites=self.sites, measures=self.measures)
        except NonFinite:
            # The loss will tell, where somebody looks at it; a measurement alone does not end anyone's run.
            log.warning("The geometry after step %d is left out: the states are not finite.", state.global_step)
            return
        self.history.append({"step": state.global_step, "sites": entries})
        self._write(args, state)
        if "tensorboard" in (args.report_to or []):
            self._to_tensorboard(args, state, entries)

    def _write(self, args, state) -> None:
        if state.is_world_process_zero:
            path = Path(args.output_dir) / "geometry.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(entry) + "\n" for entry in self.history))

    def _to_tensorboard(self, args, state, entries) -> None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(Path(args.output_dir) / "runs" / "geometry")) as writer:
            for entry in entries:
                for measure in self.measures:
                    if entry[measure] is not None:
                        writer.add_scalar(f"{measure}/{entry['site']}", entry[measure], state.global_step)
