"""
For the class: what is a cone?
==============================

A language model turns each token of a text into a vector. Take two tokens at random: what is the
cosine between their vectors? In a round cloud it is 0 on average; in a narrow cone it is near 1.
This notebook measures it, first for points that we make ourselves, then for two small models that
differ in one thing.
"""

# %%
# A cloud of our own
# ------------------
# A thousand points around the origin, then the same points pushed three steps to one side. Nothing
# else changed, and every pair of points now looks alike.
import numpy as np

import headscan

rng = np.random.default_rng(0)
cloud = rng.standard_normal((1000, 16))
for push in (0, 1, 3):
    print(f"pushed by {push}: average cosine {headscan.average_cosine(cloud + push):.3f}")

# %%
# Half a million pairs in one sum
# -------------------------------
# With every vector divided by its length, û = x/‖x‖, the sum of all cosines is ‖Σû‖². So the
# average over all pairs needs one vector sum and no pairs at all. Both ways, side by side:
unit = (cloud + 3) / np.linalg.norm(cloud + 3, axis=1, keepdims=True)
n = len(unit)
all_pairs = unit @ unit.T
print("over all pairs:", (all_pairs.sum() - np.trace(all_pairs)) / (n * (n - 1)))
print("by one sum:    ", (np.linalg.norm(unit.sum(0)) ** 2 - n) / (n * (n - 1)))

# %%
# Two models
# ----------
# ``gpt-vanilla-early`` and ``gpt-headless-early`` saw the same tokens in the same order for 120
# steps. One predicts the next token with a head over the whole vocabulary, the other is trained
# without a head. Which one is the cone?
twins = headscan.scan(
    ["gpt-vanilla-early", "gpt-headless-early"], "stories", max_tokens=3200, context=64
)
twins

# %%
# Site by site, with the interval within which the number would move on another text of the same
# kind:
for row in twins.sites:
    low, high = row["average_cosine_interval"]
    print(
        f"{row['model']:22} {row['site']:10} {row['average_cosine']:6.3f}   [{low:6.3f}, "
        f"{high:6.3f}]"
    )

# %%
# Compared with what?
# -------------------
# A number alone says little. The same architecture with random weights, and a round Gaussian cloud
# of the same size, are what it is compared with. Later in training the cone of this small model is
# mostly gone:
late = headscan.scan("gpt-vanilla", "stories", max_tokens=3200, context=64, null=True)
frame = late.frame(nulls=True, long=False)
print(
    frame.xs("block.3", level="site")[["null", "average_cosine", "effective_rank"]].to_string(
        index=False
    )
)

# %%
# Questions for the class
# -----------------------
# 1. Subtract the mean from every vector before you measure. What is the average cosine now, and is
# the cloud round?
# 2. A cloud may be flat without being a cone. Make one, and find a number in the table above that
# sees it.
# 3. Why would predicting the next token push all vectors one way? :doc:`5_the_theorist` has an
# answer.
