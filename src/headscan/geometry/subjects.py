"""The models of a scan: named, loaded and checked, all of them, before the first forward pass over the text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headscan.geometry.settings import Scanning
from headscan.model import Lens
from headscan.model.identity import tokenizer_identity
from headscan.model.opening import ModelLike, ModelsLike, open_model, open_models
from headscan.model.settings import Loading
from headscan.run import BadInput, Run

__all__ = ["Subject", "subjects"]

KEPT_BYTES = 2 * 2**30
"""Weights of several models that may wait in memory together; beyond, a model is loaded again when its turn comes."""


@dataclass
class Subject:
    """One model of a scan: `name` in tables (`short` is its own), where it comes from, the Lens while in memory."""

    name: str
    source: ModelLike
    settings: Scanning
    revision: str | None = None
    lens: Lens | None = None
    short: str = ""

    def load(self) -> Lens:
        """The Lens, loaded where it is not in memory."""
        if self.lens is None:
            options = self.settings.part(Loading) | ({"revision": self.revision} if self.revision else {})
            self.lens = open_model(self.source, Loading(**options))
            self.short = self.short or (self.name if self.revision else self.lens.name)
            self.name = self.name or self.short
        if not isinstance(self.source, Lens):
            self.lens.name = self.name
        return self.lens

    def sites(self, lens: Lens) -> tuple[str, ...]:
        """The sites that are asked for, in the order of depth."""
        return lens.default_sites if self.settings.sites is None else lens.match(self.settings.sites)

    def check(self, run: Run) -> int:
        """Load the model and see that it can be scanned as asked; the bytes of its weights.

        Raises BadInput for a model without a tokenizer, a site that it has not, a context that it cannot read, and on
        a resumed run for weights or a tokenizer that are not those of before.
        """
        lens = self.load()
        tokenizer, context = lens.require_tokenizer(), self.settings.context
        self.sites(lens)
        if lens.context_length is not None and context > lens.context_length:
            raise BadInput(f"{self.name} reads at most {lens.context_length} tokens at once, less than {context}.")
        if run.folder is not None:
            run.identify(f"the weights of {self.name}", lens.identity())
            run.identify(f"the tokenizer of {self.name}", tokenizer_identity(tokenizer))
        return sum(p.numel() * p.element_size() for p in lens.model.parameters())


def subjects(models: ModelsLike, settings: Scanning, run: Run) -> list[Subject]:
    """The models by name, all checked. One alone stays in memory, several as long as they are small.

    Raises BadInput where none is named, one twice, or one cannot be scanned as asked.
    """
    sources = [models] if isinstance(models, str | os.PathLike | Lens | torch.nn.Module) else list(models)
    found = (
        [Subject(_name(one), one, settings) for one in sources]
        if settings.revisions is None
        else _checkpoints(sources, settings)
    )
    open_models(sources, settings)  # names and configurations of all, before the weights of any are read
    names = [one.name for one in found if one.name]
    if len(set(names)) < len(names):
        raise BadInput(f"A model is named twice: {', '.join(names)}.")
    held = 0
    for one in found:
        held += one.check(run)
        if len(found) > 1 and held > KEPT_BYTES:
            one.lens = None
    shorts = [one.short for one in found]
    for one in found:  # folders of one name go by their paths
        one.name = one.short if one.short and shorts.count(one.short) == 1 else one.name
    return found


def _name(model: ModelLike) -> str:
    """What a model goes by before it is opened; nothing for a live one."""
    return model.name if isinstance(model, Lens) else "" if isinstance(model, torch.nn.Module) else os.fspath(model)


def _checkpoints(sources: Sequence[ModelLike], settings: Scanning) -> list[Subject]:
    """The revisions of the one model that was named."""
    revisions = settings.revisions
    wanted = revisions.split(",") if isinstance(revisions, str) else list(revisions or ())
    wanted = [revision.strip() for revision in wanted if revision.strip()]
    if len(sources) != 1 or not isinstance(sources[0], str) or not wanted:
        raise BadInput("--revisions takes names of revisions, separated by commas, of exactly one Hugging Face id.")
    return [Subject(f"{sources[0]}@{revision}", sources[0], settings, revision) for revision in wanted]
