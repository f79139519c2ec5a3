"""Training data: windows packed from a text, in memory, and the collators that make batches of
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sized

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from headscan.run import BadInput
from headscan.text import Windows
from headscan.training.losses import mask_tokens


class PackedText(Dataset[dict[str, Tensor]]):
    """The windows of a text, packed once: token ids int32 [n, context] in memory, or in a file that
    is mapped.

    Packing is deterministic: documents in order, joined by end-of-text, cut without overlap. The
    Trainer's sampler shuffles by its seed, so a resumed run reads the windows that it would have
    read. `begins`: positions in the tokens at which documents begin.

    >>> text = PackedText(np.arange(12).reshape(3, 4))
    >>> len(text), text[1]["input_ids"].tolist(), text.counts(12).sum().item()
    (3, [4, 5, 6, 7], 12)
    """

    def __init__(
        self, rows: npt.NDArray[np.integer], begins: npt.NDArray[np.int64] | None = None
    ) -> None:
        self.rows = rows
        self.begins = np.zeros(0, dtype=np.int64) if begins is None else begins

    @classmethod
    def of(cls, windows: Windows) -> PackedText:
        """Read the windows of a text into memory: 4 bytes a token."""
        rows: list[npt.NDArray[np.int32]] = []
        begins: list[int] = []
        last_document = 0
        for window in windows:
            changes = np.flatnonzero(np.diff(window.documents, prepend=last_document))
            begins += (changes + len(rows) * len(window.ids)).tolist()
            last_document = int(window.documents[-1])
            rows.append(window.ids.astype(np.int32))
        return cls(np.stack(rows), np.array(begins, dtype=np.int64))

    def __repr__(self) -> str:
        return f"PackedText({len(self.rows):,} windows of {self.rows.shape[1]} tokens)"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": torch.from_numpy(self.rows[index].astype(np.int64))}

    def split(self, held_out: float) -> tuple[PackedText, PackedText]:
        """Return (training, held-out): the last `held_out` share of the windows, at least one, is
        held out.
        """
        count = max(1, round(len(self.rows) * held_out))
        if count >= len(self.rows):
            raise BadInput(
                f"The text has {len(self.rows)} windows, too few to hold {count} of them out."
            )
        training_rows = self.rows[:-count]
        in_training = self.begins < training_rows.size
        training = PackedText(training_rows, self.begins[in_training])
        validation_begins = self.begins[~in_training] - training_rows.size
        return training, PackedText(self.rows[-count:], validation_begins)

    def counts(self, vocabulary: int) -> Int[Tensor, " vocabulary"]:
        """Return how often each token occurs, int64 [vocabulary]."""
        return torch.from_numpy(np.bincount(self.rows.ravel(), minlength=vocabulary))


def collate(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return a batch for next-token prediction: labels are the ids (the model shifts them).

    >>> collate([{"input_ids": torch.tensor([1, 2])}])["labels"].tolist()
    [[1, 2]]
    """
    ids = torch.stack([row["input_ids"] for row in rows])
    return {"input_ids": ids, "labels": ids}


class Masker:
    """A collator for masked prediction, by `mask_tokens`; special tokens are never masked.

    The masks are a function of the batch and the seed, not of a generator's state: data loaders
    read ahead and a resumed one skips, so a state would differ. Batches are shuffled anew each
    epoch, so masks change with them.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, share: float = 0.15, seed: int = 0
    ) -> None:
        if tokenizer.mask_token_id is None:
            raise BadInput("This tokenizer has no mask token, so it does not suit a masked recipe.")
        self.mask_id = tokenizer.mask_token_id
        self.vocabulary = len(tokenizer)
        self.special = torch.tensor(sorted(tokenizer.all_special_ids))
        self.share = share
        self.seed = seed

    def __call__(self, rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        ids = torch.stack([row["input_ids"] for row in rows])
        masked_ids, labels = mask_tokens(
            ids,
            mask_id=self.mask_id,
            vocabulary=self.vocabulary,
            special=torch.isin(ids, self.special),
            share=self.share,
            generator=self._generator(ids),
        )
        return {"input_ids": masked_ids, "labels": labels}

    def _generator(self, ids: Tensor) -> torch.Generator:
        """Return a generator whose seed is a hash of the batch, with this masker's seed as key."""
        key = str(self.seed).encode()
        digest = hashlib.blake2b(ids.numpy().tobytes(), digest_size=8, key=key).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def check_fit(tokenizer: Sized, vocabulary: int) -> None:
    """Raise BadInput where the tokenizer has more tokens than the model has rows.

    >>> check_fit([0] * 5, 4)
    Traceback (most recent call last):
    headscan.BadInput: The tokenizer has 5 tokens but the model only 4: they do not belong together.
    """
    if len(tokenizer) > vocabulary:
        raise BadInput(
            f"The tokenizer has {len(tokenizer)} tokens but the model only {vocabulary}: they do "
            "not belong together."
        )


def check_known(unknown: int, tokens: int, limit: float = 0.05) -> None:
    """Raise BadInput where more than `limit` of a text's tokens are the tokenizer's unknown token:
    the tokenizer was made for another text.

    >>> check_known(40, 100)
    Traceback (most recent call last):
    headscan.BadInput: The tokenizer does not know 40 % of the text's tokens: fit one on this text.
    """
    share = unknown / max(1, tokens)
    if share > limit:
        raise BadInput(
            f"The tokenizer does not know {100 * share:.0f} % of the text's tokens: fit one on "
            "this text."
        )


def tokenization_hash(tokenizer: PreTrainedTokenizerBase, packed: PackedText) -> str:
    """Return the hash of a vocabulary and of the windows of a text in its tokens."""
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    digest = hashlib.sha256(vocabulary.encode())
    digest.update(packed.rows.tobytes())
    return digest.hexdigest()
