"""The results of `train`, `recover` and `evaluate`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import ClassVar

from headscan.run import DataFrame, Result, dataframe, tidy
from headscan.training.monitor.alarms import Alarm
from headscan.training.monitor.readings import Reading
from headscan.training.recipes import RecipeRecord
from headscan.training.records import CurvePoint, GeometrySnapshot, Likelihood, ObjectiveRecord


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainResult(Result):
    """One training run: its recipe and objective, its curve, its held-out likelihood and its
    geometry over the training.
    """

    kind: ClassVar[str] = "train"
    recipe: RecipeRecord
    objective: ObjectiveRecord
    parameters: int  # their number
    steps: int  # steps that were taken
    tokens: int  # over all processes
    loss: float | None  # of the last point of the curve, nats
    floor_corrected_loss: float | None
    heldout_bits_per_byte: float | None  # by the head or, without one, by the log-unigram bias
    # by each way of reading the model out: "head", or "tied" and "bias"
    heldout: dict[str, Likelihood]
    notes: list[str] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)  # one entry a log line
    # one entry a measurement of all sites
    scan: list[GeometrySnapshot] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)  # raised by the monitor
    # readings that are compared with healthy runs; all readings are in monitor.jsonl
    readings: list[Reading] = field(default_factory=list)

    def frame(self) -> DataFrame:
        """Return the learning curve as a pandas table, one row a log line."""
        return dataframe([asdict(point) for point in self.curve]).dropna(axis=1, how="all")

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.3f} nats"
        return (
            f"TrainResult({self.recipe.name} {self.recipe.size}, {self.objective.name}: "
            f"{self.steps:,} steps, {self.tokens:,} tokens{loss})\n"
            "  .frame() .plot() .page() .save(folder)"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class RecoverResult(Result):
    """A headless model that was given a head."""

    kind: ClassVar[str] = "recover"
    looks_for: ClassVar[bool] = False
    recovery: str  # by its name
    parameters: int  # of the whole model
    steps: int  # of the training of the head, where it was trained
    tokens: int
    loss: float | None
    # the held-out likelihood of the embedding's rows as they are, without a bias or training
    before: Likelihood
    after: Likelihood  # the held-out likelihood with the recovered head
    curve: list[CurvePoint] = field(default_factory=list)

    def frame(self) -> DataFrame:
        """Return the held-out likelihood before and after, one row each."""
        rows = [
            {"head": "before"} | asdict(self.before),
            {"head": self.recovery} | asdict(self.after),
        ]
        return tidy(rows)

    def __repr__(self) -> str:
        nats = self.after.nats_per_token
        return (
            f"RecoverResult({self.recovery}: {nats:.3f} held-out nats a token)\n"
            f"  .frame(){' .plot()' if self.curve else ''} .page() .save(folder)"
        )
