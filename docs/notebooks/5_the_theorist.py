"""
For the theorist: what does the text alone dictate?
===================================================

Before any model is looked at, a text says where next-token prediction must lead: which part of the
logits stays finite, which part grows without end, and in what direction. The theory is that of
Zhao, Behnia, Vakilian and Thrampoulidis (arXiv:2408.15417).
"""

# %%
# A text in which everything can be seen
# --------------------------------------
# Each context has a *support*, the tokens that ever follow it.
import numpy as np

import headscan
import headscan.ntp as ntp
from headscan.text.counts import count
from headscan.text.source import Counting

text = "the cat sat . the cat ran . the dog ran . the dog sat . the sun rose ."
text_words = text.split()
names = sorted(set(text_words))
counts = count(
    [np.array([names.index(word) for word in text_words])], len(names), Counting(order=1)
)
for row, context in enumerate(counts.contexts):
    next_tokens = counts.indices[counts.indptr[row] : counts.indptr[row + 1]]
    print(f"{names[context[0]]:>5} ->", *(names[token] for token in next_tokens))

# %%
# The floor of the loss
# ---------------------
# No model of this order gets below the entropy of the soft labels.
labels = ntp.SoftLabels.of(counts.matrix())
print(
    f"entropy bound {labels.entropy():.4f} nats; {ntp.describe(labels).supports} different supports"
)

# %%
# The direction in which logits grow
# ----------------------------------
# Outside the supports logits want minus infinity. The direction is a max-margin problem of least
# nuclear norm over the supports, and the solution proves itself: the dual value bounds the primal
# from below, and the gap is what is left.
support = np.asarray(counts.matrix().todense()) > 0
solution = ntp.svm(support)
print(f"primal {solution.primal:.6f}, dual {solution.dual:.6f}, relative gap {solution.gap:.1e}")

# %%
# Contexts with equal supports fall together: ``cat`` and ``dog``, and the verbs. The cosines of
# their columns of logits:
logits = np.asarray(solution.logits)
columns = logits if logits.shape[0] == len(counts.contexts) else logits.T
unit = columns / np.linalg.norm(columns, axis=1, keepdims=True)
order = [names[context[0]] for context in counts.contexts]
cosine = unit @ unit.T
for a, b in (("cat", "dog"), ("sat", "ran"), ("cat", "sat"), ("cat", "the")):
    print(f"{a} and {b}: {cosine[order.index(a), order.index(b)]:+.3f}")

# %%
# A text of some size
# -------------------
# The same of 20,000 bytes of the embedded stories, two bytes of context, and of a model held
# against it: ``--model`` on the command line.
prediction = headscan.ntp.run("stories", tokenizer="bytes", order=2, max_tokens=20_000)
prediction

# %%
# The numbers that stay: contexts, supports, the entropy bound over all positions with a full
# context, and how many contexts have one successor only, where the text leaves nothing to predict.
# :doc:`/ntp` goes on from here.
print(
    prediction.contexts,
    prediction.supports,
    round(prediction.entropy_bound, 4),
    round(prediction.single_successor_share, 3),
)
