"""What a checkup is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from headscan.diagnosis.condition import CONDITIONS
from headscan.model.settings import Loading
from headscan.run import BadInput, Option, Running
from headscan.text.settings import TEXT, Reading, TextLike

__all__ = ["CheckingUp"]


@dataclass(frozen=True)
class CheckingUp(Loading, Reading, Running):
    """The options of a checkup; see each one's help."""

    text: Annotated[TextLike | None, TEXT] = None
    _: KW_ONLY
    budget: Annotated[
        Literal["2m", "10m", "full"],
        Option(
            "How long a model may take: two or ten minutes, from the speed of its first pass (more tokens are read, and more "
            "is tried, the longer), or all of the text, the random twin and every search."
        ),
    ] = "2m"
    fail_on: Annotated[
        str | Sequence[str] | None,
        Option(
            "Exit with status 3 where one of these was found: globs of codes, comma-separated, such as 'HS101,HS2*'.",
            metavar="CODES", identity=False,
        ),
    ] = None  # fmt: skip
    contribute: Annotated[
        bool,
        Option(
            "Write reference.json into --out, too: a row of the reference population, to be shared (docs/population.md).",
            identity=False,
        ),
    ] = False
    checkpoints: Annotated[
        bool, Option("The sources are checkpoints of one training run, in its order: that order is examined, too.")
    ] = False
    context: Annotated[int, Option("Tokens of a window; one window is one row of a forward pass.", low=2)] = 128

    def check(self) -> None:
        """Codes that there are, and a folder for what is to be written there."""
        super().check()
        if self.contribute and self.out is None:
            raise BadInput("--contribute writes reference.json into --out: name a folder.")
        self.failing()

    def failing(self) -> list[str]:
        """The codes at which the command fails."""
        if self.fail_on is None:
            return []
        return CONDITIONS.match(self.fail_on if isinstance(self.fail_on, str) else ",".join(self.fail_on))
