"""
For the searcher: is a column of embeddings worth repairing?
============================================================

A column of vectors in a table or a vector store: no model at hand, and texts that do not find their
partners. Is the cloud to blame, and does any repair help? The vectors here are the mean states of a
small model that ships with headscan: the first half of each piece of text has to find its second
half.
"""

# %%
# A column and its queries
# ------------------------
import numpy as np
import torch

import headscan
from headscan.text import Windows

lens = headscan.Lens.load("gpt-vanilla")
ids = torch.from_numpy(
    next(iter(Windows("stories", lens.tokenizer, 64 * 500))).ids.reshape(500, 64)
)
halves = [
    torch.cat([lens.run(part, sites="block.3")["block.3"].mean(1) for part in half.split(100)])
    .double()
    .numpy()
    for half in (ids[:, :32], ids[:, 32:])
]
queries, column = (half / np.linalg.norm(half, axis=1, keepdims=True) for half in halves)
print(column.shape, "average cosine", round(headscan.average_cosine(column), 3))

# %%
# Does a remedy help?
# -------------------
# Each is fitted on some rows and judged on others: how often a query finds its partner first. Gains
# have intervals wide enough for all remedies at once; a remedy whose interval holds 0 did not help.
judged = headscan.remedy(column, partners=queries, held_out=250)
judged

# %%
# The same as a table:
table = judged.frame()[["remedy", "recall_at_1", "recall_at_1_gain", "hubness", "average_cosine"]]
print(table.round(3).to_string(index=False))

# %%
# Taking one along
# ----------------
# A remedy is a map of vectors. ``headscan remedy SOURCE --export NAME`` writes it as a ``Dense``
# module of sentence-transformers, an ONNX graph, or the column itself, rewritten; scikit-learn has
# it as a transformer:
from headscan.remedies.transformer import RemedyTransformer

repaired = RemedyTransformer("whiten-softly").fit_transform(column)
print(
    "average cosine before",
    round(headscan.average_cosine(column), 3),
    "after",
    round(abs(headscan.average_cosine(repaired)), 3),
)

# %%
# A cone alone is no illness: a remedy that makes a cloud round need not make it find better, and
# the table above decides. :doc:`/remedies` has figures of encoders that people use.
