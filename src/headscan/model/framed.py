"""A Lens that reads windows of text between tokens that are added: start tokens, [CLS] and [SEP].

The added positions are in none of the states that it returns; their energy is counted apart.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.model.inputs import IdsLike, ModelInputs
from headscan.model.lens import Lens
from headscan.model.sentence import SentenceHead
from headscan.model.traits import Traits
from headscan.run import Json, ModelRecord, Run, TextRecord
from headscan.text.spelling import display
from headscan.text.tokens import Frame, frame_of


class AddedEnergy:
    """The energy of added positions at one site, and of the text's; sums stay on the device."""

    def __init__(self) -> None:
        self._sums: Tensor | float = 0.0
        self._rows = 0

    def add(self, states: Float[Tensor, "B T d"], text: slice) -> None:
        """Add the states of framed windows, of which `text` are the positions of the text."""
        energies = states.detach().float().square().sum(-1).double()
        of_text = energies[:, text].sum()
        norms_of_text = energies[:, text].sqrt().mean(1).sum()
        added = torch.cat([energies[:, : text.start], energies[:, text.stop :]], dim=1)
        norms_of_added = added.sqrt().mean(1).sum()
        sums = torch.stack([added.sum(), of_text, norms_of_added, norms_of_text])
        self._sums = sums + self._sums
        self._rows += len(states)

    @property
    def share(self) -> float:
        """The share of the energy of whole windows that the added positions have."""
        added, of_text, *_ = torch.as_tensor(self._sums).tolist()
        return float(added / max(added + of_text, 1e-300))

    @property
    def relative_norm(self) -> float:
        """The mean norm of the added positions over that of the text's."""
        *_, added, of_text = torch.as_tensor(self._sums).tolist()
        return float(added / max(of_text, 1e-300))


class FramedLens(Lens):
    """A Lens over the same model that adds the tokens of a frame around every window of ids.

    `run` with token ids adds them, and returns the states of the text alone; inputs of other kinds,
    `watch` and `patch` are those of `plain`.

    Attributes:
        frame: the ids in front and behind.
        energies: of the added positions, by site.
    """

    def __init__(self, lens: Lens, frame: Frame) -> None:
        vars(self).update(vars(lens))
        self._answers = {}  # answers by way of `run` are others
        self._plain = lens
        self.frame = frame
        self.energies: dict[str, AddedEnergy] = {}
        if lens.context_length is not None:
            self.context_length = lens.context_length - frame.length

    @property
    def plain(self) -> Lens:
        return self._plain

    @property
    def inputs(self) -> ModelInputs:
        return self._plain.inputs

    @property
    def traits(self) -> Traits:
        return self._plain.traits

    @property
    def sentence(self) -> SentenceHead | None:
        return self._plain.sentence

    def provenance(self) -> ModelRecord:
        return self._plain.provenance()

    def identity(self) -> Json:
        return self._plain.identity()

    def twin(self, seed: int, *, first_block: bool = False) -> Callable[[], Lens]:
        make_control = self._plain.twin(seed, first_block=first_block)
        frame = self.frame
        return lambda: framed(make_control(), frame)

    def run(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        attention_mask: IdsLike | None = None,
        decoder_input_ids: IdsLike | None = None,
        sites: str | Iterable[str],
        each: Callable[[str, Tensor], Any] | None = None,
        grad: bool = False,
    ) -> dict[str, Float[Tensor, "B T width"]]:
        if input_ids is None or attention_mask is not None or decoder_input_ids is not None:
            return self._plain.run(
                input_ids,
                inputs_embeds=inputs_embeds,
                attention_mask=attention_mask,
                decoder_input_ids=decoder_input_ids,
                sites=sites,
                each=each,
                grad=grad,
            )
        framed = framed_ids(self.inputs.ids(input_ids), self.frame)
        text = self.frame.text(framed.shape[1])

        def of_text(site: str, states: Tensor) -> Tensor:
            if site != "head":
                self.energies.setdefault(site, AddedEnergy()).add(states, text)
            return states[:, text]

        if each is None:
            framed_states = self._plain.run(framed, sites=sites, grad=grad)
            return {site: of_text(site, states) for site, states in framed_states.items()}
        take = each

        def pass_on(site: str, states: Tensor) -> None:
            take(site, of_text(site, states))

        return self._plain.run(framed, sites=sites, each=pass_on, grad=grad)

    def sentences(self) -> list[str]:
        """Return what the added positions have of the energy, at the site where it is most."""
        if not self.energies:
            return []
        site, energy = max(self.energies.items(), key=lambda item: item[1].share)
        return [
            f"The added positions have {energy.share:.1%} of the energy of the windows at {site}, "
            f"the largest share of any site; their norm is {energy.relative_norm:.3g} times that "
            "of the text's positions."
        ]


def framed_ids(ids: Int[Tensor, "B T"], frame: Frame) -> Int[Tensor, "B framed"]:
    """Return token ids with the added ones."""
    front = ids.new_tensor(frame.front).expand(len(ids), -1)
    end = ids.new_tensor(frame.end).expand(len(ids), -1)
    return torch.cat([front, ids, end], dim=1)


def framed(lens: Lens, frame: Frame) -> Lens:
    """Return a Lens that reads windows within a frame; itself where the frame is empty."""
    return FramedLens(lens.plain, frame) if frame.length else lens.plain


def beginning(lens: Lens, start: str) -> Lens:
    """Return a Lens whose windows begin as `start` says (`headscan.text.source.Reading`)."""
    return framed(lens, frame_of(lens.tokenizer, start))


def refuse_start(run: Run, lens: Lens, start: str) -> None:
    """Raise BadInput where `--start` was given and asks for tokens of a tokenizer that the model
    lacks.
    """
    if "start" in run.given and start != "none":
        lens.require_tokenizer()


def with_beginning(record: TextRecord, tokenizer: Any, start: str) -> TextRecord:
    """Return the record of a text with how its windows begin: the tokens that are added, or, where
    none are, those that the tokenizer would add.
    """
    frame = frame_of(tokenizer, "tokenizer" if start == "none" else start)
    added = display(tokenizer, [*frame.front, *frame.end]) if frame.length else []
    return replace(record, start=start, added=added)
