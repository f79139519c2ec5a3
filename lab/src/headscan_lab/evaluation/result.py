"""The result of `headscan evaluate`."""

from dataclasses import asdict, dataclass
from typing import ClassVar

from headscan.run import DataFrame, Result, dataframe


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number of an evaluation task. interval: 95 %, over other items (of `of_items`); None of
    what is no estimate from items: a count, a p-value, a spread.
    """

    task: str
    number: str
    value: float | int | None
    interval: list[float] | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class EvaluationResult(Result):
    """The numbers of a model on evaluation tasks: `scores` has one entry a number of a task."""

    kind: ClassVar[str] = "evaluation"
    looks_for: ClassVar[bool] = False
    scores: list[Score]

    def of(self, task: str) -> dict[str, float | int | None]:
        """Return the numbers of one task by name."""
        return {score.number: score.value for score in self.scores if score.task == task}

    def frame(self) -> DataFrame:
        return dataframe(
            [asdict(score) for score in self.scores], columns=["task", "number", "value"]
        )

    def __repr__(self) -> str:
        tasks = ", ".join(dict.fromkeys(score.task for score in self.scores))
        names = ", ".join(model.name for model in self.models)
        return f"EvaluationResult({names}: {tasks})\n  .frame() .plot() .page() .save(folder)"
