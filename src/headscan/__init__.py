"""headscan: a CAT scanner for language models.

It answers four questions about any Hugging Face language model: what *shape* its representations have, what *caused*
it, what of the input is *still in them*, and what the *cure* is. Each question has a package of its own; the names
below are the ones most programs need.
"""

__version__ = "0.1.0"
