"""Tasks of lm-evaluation-harness, for those that headscan has no data for.

They need `pip install 'headscan[eval]'`.
"""

import importlib.util
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.run import BadInput


def check_harness() -> None:
    """Raise BadInput where the harness is not installed."""
    if importlib.util.find_spec("lm_eval") is None:
        raise BadInput("lm-evaluation-harness is not installed: pip install 'headscan[eval]'.")


def harness(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tasks: list[Any],
    *,
    limit: int | None = None,
    batch: int = 16,
    **options: Any,
) -> dict[str, dict[str, float]]:
    """Run tasks of lm-evaluation-harness on a causal model; return {task: {metric: value}}.

    Args:
        tasks: names ("lambada_openai", "blimp", "hellaswag", ...), which fetch their data from the
            Hub, or task objects of the harness.
        limit: items a task.
        options: any other argument of `lm_eval.simple_evaluate`.

    Raises:
        BadInput: where the harness is not installed or knows no such task, or the model has no
            head.
    """
    if model.get_output_embeddings() is None:
        raise BadInput("lm-evaluation-harness needs a model with a head: recover one first.")
    check_harness()
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = options.pop("task_manager", None) or TaskManager()
    unknown = [task for task in tasks if isinstance(task, str) and not manager.match_tasks([task])]
    if unknown:
        raise BadInput(
            f"lm-evaluation-harness {lm_eval.__version__} has no task {', '.join(unknown)}."
        )
    length = getattr(model.config, "max_position_embeddings", None)
    wrapped = HFLM(
        pretrained=model.eval(), tokenizer=tokenizer, batch_size=batch, max_length=length
    )
    output = lm_eval.simple_evaluate(
        wrapped, tasks=tasks, limit=limit, task_manager=manager, **options
    )
    return {task: _numbers(metrics) for task, metrics in output["results"].items()}


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the metrics that are numbers, without the harness's filter in their names."""
    numbers = {}
    for name, value in metrics.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[name.removesuffix(",none")] = float(value)
    return numbers
