"""The experiments of the ledger, a kind a file; they register themselves."""
