"""The shape of the representations while a model trains: a callback for any transformers Trainer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headscan.geometry import MEASURES
from headscan.geometry.kept_gradient import GradientThroughHead, KeptGradient
from headscan.model import Lens
from headscan.model.tables import embedding_table
from headscan.run import BadInput, Row, plain, write_atomic
from headscan.statistics import Cloud, NonFinite, SiteStatistics
from headscan.training.heads import body_of, head_of
from headscan.training.learner import Learner
from headscan.training.records import GeometryMoment

__all__ = ["GeometryCallback", "measure_sites"]

log = logging.getLogger(__name__)
GRADIENTS = 512  # tokens whose gradients are measured
DEFAULT = ("average_cosine", "top_direction_share", "effective_rank", "mean_norm")


def measure_sites(
    lens: Lens, windows: npt.NDArray[np.integer], *, sites: str | Iterable[str] | None = None,
    measures: Iterable[str] = DEFAULT, batch: int = 8,
) -> list[Row]:  # fmt: skip
    """Measures of each site over windows int [n, context]: one row a site, in the order of depth.

    The head is left out unless asked for. Every measure comes with a companion NAME_without_first, that leaves
    position 0 of each window out. The embedding *table* itself, one row a token, is the last entry, "embedding_table".
    Raises BadInput for a measure or site that is not there.
    """
    chosen = {name: MEASURES[name] for name in measures}
    names = lens.match(sites) if sites else tuple(s for s in lens.sites if s != "head" and _is_stream(s))
    kept = {name: SiteStatistics(lens.width(name), device=lens.device) for name in names}
    for start in range(0, len(windows), batch):
        rows = torch.from_numpy(np.ascontiguousarray(windows[start : start + batch])).long().to(lens.device)
        numbers = list(range(start, start + len(rows)))

        def take(site: str, states: torch.Tensor, at: list[int] = numbers) -> None:
            kept[site].update(states, at)

        lens.run(rows, sites=names, each=take)
    found = []
    for name, statistics in kept.items():
        cells: dict[str, object] = {"site": name}
        for suffix, group in (("", "all"), ("_without_first", "without_first")):
            cloud = Cloud.of_sums(statistics.sums(group))
            cells |= {measure + suffix: of(cloud) for measure, of in chosen.items()}
        found.append(Row(cells))
    table = Cloud.of_rows(embedding_table(lens.model).detach().double().cpu().numpy())
    return [*found, Row({"site": "embedding_table"} | {measure: of(table) for measure, of in chosen.items()})]


def _is_stream(site: str) -> bool:
    """The residual stream and the ends of it, not the branches that feed it."""
    return not site.rpartition(".")[2].startswith(("attention", "mlp", "mixer"))


class GeometryCallback(TrainerCallback):
    """Measure the geometry of every site as training goes on. Add it to any `transformers.Trainer`:

        Trainer(..., callbacks=[GeometryCallback(windows, every=100)])

    windows: int [n, context], the text to measure on (held out, if it is to mean anything). every: steps between two
    measurements; it also measures before the first step and after the last. `history` is a list of `GeometryMoment`; the
    same goes, line by line, to geometry.jsonl in the run's folder, and to TensorBoard where the Trainer reports to it.
    counts: the training text's token counts [V], by which a headless model is read out for its gradient.
    Training is not touched: modes and random states are as before. A run that was interrupted and resumed measures at
    the steps of one that was not.

    Cost: one forward pass over the windows each time, and a Gram matrix a site.
    """

    def __init__(
        self, windows: npt.NDArray[np.integer], *, every: int = 100, sites: str | None = None,
        measures: Iterable[str] = DEFAULT, counts: Int[Tensor, " vocabulary"] | None = None,
    ) -> None:  # fmt: skip
        if every < 1:
            raise BadInput(f"The geometry is measured every 1 step or more, not every {every}.")
        self.windows, self.every, self.sites, self.measures = windows, every, sites, tuple(measures)
        self.counts = counts
        self.history: list[GeometryMoment] = []
        self._lens: Lens | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Measure the model as it comes; after a resumption, take up the history up to that step."""
        path = self._file(args)
        if state.global_step and path.exists():
            lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
            moments = [_moment(line) for line in lines]
            # What was measured where a run was stopped early belongs to that end, and this run goes past it.
            self.history = [
                moment
                for moment in moments
                if moment.step <= state.global_step and (self._due(moment.step) or moment.step == state.max_steps)
            ]
        self._write(args, state)
        if self._due(state.global_step):
            self._measure(args, state, model)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Measure where the step is due."""
        if self._due(state.global_step):
            self._measure(args, state, model)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Measure the finished model."""
        self._measure(args, state, model)

    def _file(self, args: TrainingArguments) -> Path:
        return Path(args.output_dir or ".") / "geometry.jsonl"

    def _due(self, step: int) -> bool:
        return step % self.every == 0

    def _measure(self, args: TrainingArguments, state: TrainerState, model: nn.Module) -> None:
        if not state.is_world_process_zero or any(moment.step == state.global_step for moment in self.history):
            return
        inner: Any = getattr(model, "module", model)  # DDP
        learner = inner if isinstance(inner, Learner) else None
        inner = inner if learner is None else learner.model
        with torch.random.fork_rng():
            if self._lens is None or self._lens.model is not inner:
                self._lens = Lens(inner, name="training")
            try:
                rows = measure_sites(self._lens, self.windows, sites=self.sites, measures=self.measures)
                gradient = _gradient(inner, learner, self.windows, self.counts)
            except NonFinite:
                # The loss will tell, where somebody looks at it; a measurement alone does not end anyone's run.
                log.warning("The geometry after step %d is left out: the states are not finite.", state.global_step)
                return
        self.history.append(GeometryMoment(step=state.global_step, sites=rows, gradient=gradient))
        self._write(args, state)
        if "tensorboard" in (args.report_to or []):
            self._to_tensorboard(args, state, rows)

    def _write(self, args: TrainingArguments, state: TrainerState) -> None:
        if state.is_world_process_zero:
            path = self._file(args)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, "".join(json.dumps(plain(moment)) + "\n" for moment in self.history))

    def _to_tensorboard(self, args: TrainingArguments, state: TrainerState, rows: list[Row]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(self._file(args).parent / "runs" / "geometry")) as writer:
            for row in rows:
                for measure in self.measures:
                    if (value := row.number(measure)) is not None:
                        writer.add_scalar(f"{measure}/{row['site']}", value, state.global_step)


def _moment(line: dict[str, Any]) -> GeometryMoment:
    found = line.get("gradient")
    gradient = KeptGradient(**found) if found else None
    return GeometryMoment(step=line["step"], sites=[Row(row) for row in line["sites"]], gradient=gradient)


@torch.no_grad()
def _gradient(
    model: Any, learner: Learner | None, windows: npt.NDArray[np.integer], counts: Int[Tensor, " vocabulary"] | None
) -> KeptGradient | None:
    """Through the head of a model that predicts the next token; None of any other."""
    if learner is not None:
        head = None if learner.masked else learner.readout(counts)
    else:
        head = head_of(model) if type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")) else None
    if head is None:
        return None
    training = model.training
    model.eval()
    some = windows[: max(1, GRADIENTS // windows.shape[1])]
    ids = torch.from_numpy(np.ascontiguousarray(some)).long().to(head.rows.device)
    states = body_of(model)(ids).last_hidden_state[:, :-1].flatten(0, 1)
    model.train(training)
    through = GradientThroughHead(head.rows, bias=head.bias, cap=head.cap)
    through.update(head.transform(states), ids[:, 1:].flatten())
    return through.result()
