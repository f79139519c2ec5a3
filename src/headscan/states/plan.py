"""How the sources of a verb are loaded and read: what a scan, a comparison and estimates share."""

from dataclasses import dataclass

from headscan.model.lens import Lens
from headscan.model.settings import Loading
from headscan.run import BadInput
from headscan.states.source import VectorSource
from headscan.text.source import Reading, TextLike, Windowing


@dataclass(frozen=True, kw_only=True)
class ReadingPlan:
    """How the sources of a verb are loaded and read, and at which sites.

    Attributes:
        loading: how models are loaded.
        reading: how the text falls into documents, and how much of it is read.
        windowing: how tokens are cut into windows, and how many windows a forward pass has.
        text: what models read; None where all sources are stored states.
        sites: globs of sites, comma-separated; None for the default sites of each source.
        seed: of random-weight controls, samples and draws.
    """

    loading: Loading
    reading: Reading
    windowing: Windowing
    text: TextLike | None = None
    sites: str | None = None
    seed: int = 0

    def check_window(self, context: int | None, *, alone: bool = False) -> None:
        """Raise BadInput where windows of `context` tokens are all skipped, or none is read.

        Args:
            context: tokens of a window; None where they are not known yet, and nothing is checked.
            alone: whether each document is a window, also where it is shorter than `context`.
        """
        if context is None:
            return
        skip_first = self.windowing.skip_first
        if skip_first >= context:
            raise BadInput(
                f"--skip-first must leave at least one of the {context} positions of a window, "
                f"not {skip_first}."
            )
        max_tokens = self.reading.max_tokens
        if max_tokens is not None and max_tokens < context and not alone:
            raise BadInput(
                f"--max-tokens must be at least one window of {context} tokens, not {max_tokens}."
            )

    def sites_of(self, source: VectorSource | Lens) -> tuple[str, ...]:
        """Return the sites of a source that are read, in the order of depth."""
        if self.sites is None:
            return source.default_sites
        return source.match(self.sites)
