"""Adapters of other libraries' models, one a file; `headscan.model.adapter.ADAPTERS` finds them by itself."""
