"""The ledger: claims of the literature with a protocol, an experiment and a verdict each.

- `claim`: claims by number; plug-ins `enter` their own
- `experiment`, `measurement`: what is measured; `experiments`: a kind a file
- `decision`: the one rule from measurements to a verdict
- `proxies`, `language`, `family`, `named_models`: the models that are examined
- `record`, `statements`: what was found of a claim, and of the statements of a document
- `figures`, `papers`: figures redrawn; `page`: the ledger as documentation
- `run`: the verb `headscan reproduce`
"""
