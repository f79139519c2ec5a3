"""What `train`, `recover` and `evaluate` leave behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import ClassVar

from headscan.run import DataFrame, Result, dataframe
from headscan.training.monitor.alarms import Alarm
from headscan.training.monitor.readings import Reading
from headscan.training.objective import CurvePoint, GeometrySnapshot, Likelihood, ObjectiveRecord
from headscan.training.recipes import RecipeRecord


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainResult(Result):
    """One training run: what was trained, its curve, its held-out likelihood and the geometry along
    the way.
    """

    kind: ClassVar[str] = "train"
    recipe: RecipeRecord
    objective: ObjectiveRecord
    parameters: int  # their number
    steps: int  # how far it went
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
    alarms: list[Alarm] = field(default_factory=list)  # what the monitor named
    # what is held against other runs; all are in monitor.jsonl
    readings: list[Reading] = field(default_factory=list)

    def frame(self) -> DataFrame:
        """The learning curve as a pandas table, one row a log line."""
        return dataframe([asdict(point) for point in self.curve]).dropna(axis=1, how="all")

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.3f} nats"
        said = (
            f"TrainResult({self.recipe.name} {self.recipe.size}, {self.objective.name}: "
            f"{self.steps:,} steps, "
        )
        return said + f"{self.tokens:,} tokens{loss})\n  .frame() .plot() .page() .save(folder)"


@dataclass(frozen=True, kw_only=True, repr=False)
class RecoverResult(Result):
    """A headless model that was given a head."""

    kind: ClassVar[str] = "recover"
    recovery: str  # by its name
    parameters: int  # of the whole model
    steps: int  # of the training of the head, where it was trained
    tokens: int
    loss: float | None
    # the held-out likelihood of the embedding's rows as they are, without a bias or training
    before: Likelihood
    after: Likelihood  # the same with it
    curve: list[CurvePoint] = field(default_factory=list)

    def frame(self) -> DataFrame:
        """The held-out likelihood before and after, one row each."""
        readings = (("before", self.before), (self.recovery, self.after))
        return dataframe([{"head": name} | asdict(found) for name, found in readings])

    def __repr__(self) -> str:
        said = (
            f"RecoverResult({self.recovery}: {self.after.nats_per_token:.3f} held-out nats a token)"
        )
        return said + "\n  .frame() .plot() .page() .save(folder)"
