"""The kinds of findings that the monitor of a training run can have: its alarms."""

from headscan.run.kinds import Kind, declare

LIMIT = "that of its alarm (docs/generated/registries.md)"
GROUND = "300 healthy runs of small models; HS514 and HS516: 102; HS517 needs none"
ERRORS = "see docs/training.md"


def _alarm(code: str, name: str, meaning: str) -> Kind:
    return declare(code, name, "train", meaning, LIMIT, GROUND, ERRORS, number="at the alarm")


ALARM_KINDS = {
    kind.code: kind
    for kind in (
        _alarm("HS501", "LOSS-LEAP", "The loss jumped above its recent values."),
        _alarm("HS502", "LOSS-RISE", "The loss rose and stayed there."),
        _alarm("HS503", "CLOSING-CONE", "The states close into a cone."),
        _alarm("HS504", "FALLING-RANK", "The effective rank of a site fell."),
        _alarm("HS505", "DEAD-COORDINATES", "Coordinates stopped telling tokens apart."),
        _alarm("HS506", "GROWING-NORM", "The mean norm of a site grew."),
        _alarm(
            "HS507", "LOGIT-GROWTH", ("Attention logits grew beyond the resolution of softmax.")
        ),
        _alarm("HS508", "ONE-PLACE-HEAD", "A head attends to one position."),
        _alarm("HS509", "OVERFLOW", "Activations come near the largest number of their precision."),
        _alarm("HS510", "LARGE-UPDATE", "A step moves a matrix much further than before."),
        _alarm("HS511", "NO-WARM-UP", "The first step moves weights far."),
        _alarm("HS512", "FROZEN-LAYER", "A matrix stands still while others move."),
        _alarm("HS513", "ROW-SPIKE", "A row of a matrix grew far beyond the others."),
        _alarm("HS514", "STARVED-EXPERT", "An expert gets no token."),
        _alarm("HS515", "REPEATED-DATA", "Windows are repeated within a short time."),
        _alarm("HS516", "OTHER-TOKENS", "The tokens of the windows differ from earlier ones."),
        _alarm(
            "HS517", "NOT-FINITE", "A loss, gradient, weight, state or reading is NaN or infinite."
        ),
    )
}
"""Every kind by its code, which its rule names."""
