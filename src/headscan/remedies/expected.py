"""What judging remedies will take in memory and time, said before weights are read; for `--dry-run`."""

from __future__ import annotations

from typing import cast

from headscan.model.load import Preparation
from headscan.model.opening import ModelLike, prepare_model
from headscan.model.settings import Loading
from headscan.model.tokenizers import require_tokenizer
from headscan.remedies.settings import RemedySettings
from headscan.remedies.stored import SAMPLE, read_site
from headscan.run import BadInput, takes
from headscan.states import SourceLike, VectorSource, stored_source
from headscan.states.expected import Estimate, model_size, operations_a_second
from headscan.text.documents import Document
from headscan.text.tokens import tokenise

__all__ = ["estimate_remedy"]

COUNTED = 200
"""Texts of which tokens are counted."""


@takes(RemedySettings)
def estimate_remedy(source: SourceLike, settings: RemedySettings) -> list[Estimate]:
    """What `headscan.remedy` will take, as one estimate, without reading weights and without writing anything.

    Raises BadInput as `remedy` does for what can be known without the weights.

    >>> import numpy as np
    >>> one, = estimate_remedy(np.zeros((90_000, 16)))
    >>> one.tokens, one.memory > 8 * 5000 * 16
    (90000, True)
    """
    stored = stored_source(source, context=128, max_tokens=settings.max_tokens, field=settings.field)
    return [_of_texts(cast(ModelLike, source), settings) if stored is None else _of_store(stored, settings)]


def _of_store(stored: VectorSource, settings: RemedySettings) -> Estimate:
    width, judged = stored.width(read_site(stored, settings.site)), settings.held_out
    stores = 1 + (settings.partners is not None) + (settings.against is not None)
    read = 4.0 * width**2 * (stored.tokens or 1_000_000)
    memory = 8.0 * width * (2 * stores * judged + SAMPLE + 16 * width)
    seconds = (read + _judging(settings, judged, stores * judged, width)) / operations_a_second()
    return Estimate(stored.name, stored.tokens, 0.0, memory, seconds)


def _of_texts(model: ModelLike, settings: RemedySettings) -> Estimate:
    ready = prepare_model(model, Loading(**settings.part(Loading)))
    texts = {text for pairs in settings.pair_sets() for text in (*pairs.one, *pairs.other)}
    if not texts:
        raise BadInput("Say by what a model's remedies are judged: --pairs FILE of texts that mean the same.")
    tokenizer = require_tokenizer(ready.tokenizer, "the model")
    some = [Document(str(k), [text]) for k, text in enumerate(sorted(texts)[:COUNTED])]
    tokens = sum(len(one.ids) for one in tokenise(some, tokenizer)) * len(texts) // len(some)
    name, entries, weights = model_size(ready)
    if isinstance(ready, Preparation):
        width = int(ready.config.get_text_config().hidden_size)
    else:
        width = ready.width(ready.default_sites[-1])
    models = 1 + (settings.against is not None)
    work = models * 2.0 * entries * tokens + _judging(settings, len(texts) // 2, len(texts) // 2, width)
    note = "" if settings.text is None else "Reading the text to fit on comes on top."
    memory = 8.0 * width * (3 * len(texts) + 16 * width)
    return Estimate(name, tokens, models * weights, memory, work / operations_a_second(), note=note)


def _judging(settings: RemedySettings, queries: int, items: int, width: int) -> float:
    """Operations of all remedies: fitting one takes about 20 d³, its neighbours a product in float64."""
    return (1 + len(settings.methods())) * (20.0 * width**3 + 4.0 * queries * items * width)
