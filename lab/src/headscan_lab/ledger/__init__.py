"""The ledger: statements of the literature with a protocol, an experiment and a verdict each.

- `statement`: statements by id, and the one rule from numbers to a verdict; plug-ins `enter` theirs
- `experiments`: what is measured, by subject; `measurement`: a number with its interval
- `models`, `language`: the models that are examined, and the language of those trained here
- `untested`: statements that nothing here could turn, and why; `independent`: other code's numbers
- `figures`: figures redrawn; `page`: the ledger as documentation
- `run`: the verb `headscan reproduce`
"""
