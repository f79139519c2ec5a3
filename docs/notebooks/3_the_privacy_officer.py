"""
For the privacy officer: what does a log of hidden states give away?
====================================================================

A service keeps hidden states, or a cache of keys and values, and not the text. Is that safe? Two
questions are answered here: can the text be read again, and how many bits of each token are in what
was kept, whatever attack anyone thinks of next.
"""

# %%
# Reading a prompt from its states
# --------------------------------
# The states of one middle block, and nothing else, go to an exact search. It ends with a
# certificate: the tokens were run again, and every other token of the vocabulary lies at least the
# *margin* away.
import headscan

leak = headscan.invert("gpt-vanilla", "The dog ran to the old house.", at="block.2")
leak

# %%
prompt = leak.prompts[0]
print(
    "verdict:",
    prompt.verdict,
    "| residual:",
    f"{prompt.certificate.residual:.1e}",
    "| margin:",
    f"{prompt.certificate.margin:.2f}",
)

# %%
# How much noise makes it safe?
# -----------------------------
# Noise is in units of the spread of the states' coordinates. ``bits_upper`` is proved: no attack
# with this prior learns more of a token, on average. ``bits_lower`` is proved, too: an attack that
# learns so much exists. The prior is what this model foresees of a text that a model of its kind
# wrote, so that there is little to give away; under another prior there is more.
audit = headscan.privacy(
    "gpt-vanilla", "stories", sites="block.2", windows=1, length=6, noise=(0, 0.8, 3.2, 12.8)
)
clean, *noisy = audit.rows
print(f"no noise: {clean.verdict}, attack right {clean.attack_accuracy:.0%}")
for row in noisy:
    bounds = f"{row.bits_lower:.2f} to {row.bits_upper:.2f} bits of {row.prior_bits:.2f}"
    print(
        f"noise {row.noise:4}: {bounds}; attack right {row.attack_accuracy:.0%}, at most "
        f"{row.attack_accuracy_upper:.0%}"
    )

# %%
audit

# %%
# A cache in four bits
# --------------------
# Rounding is no protection by itself: whoever knows how it was rounded rounds the candidates, too.
cache = headscan.privacy(
    "gpt-vanilla",
    "stories",
    release="cache",
    stored="keys",
    format="int4",
    sites="block.2",
    noise=(0,),
    windows=1,
    length=4,
)
print(f"keys in int4: attack right {cache.rows[0].attack_accuracy:.0%}, {cache.rows[0].verdict}")

# %%
# What to write down
# ------------------
# The prior (what an attacker knows of such texts), the noise, the upper bound with its interval,
# and the loss that the noise adds. A bound without its prior says nothing. One window, as here, is
# a demonstration; :doc:`/leaks` says what a bound is of.
