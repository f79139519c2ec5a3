"""The ledger: claims of the literature with a protocol, an experiment and a verdict each.

- `claim`: claims by number, and `decide`, the one rule from measurements to a verdict; plug-ins
  `enter` their own
- `experiment`, `measurement`: what is measured, and what came of it
"""
