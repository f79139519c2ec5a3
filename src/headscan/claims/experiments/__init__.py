"""The experiments of the ledger, one kind a file; they register themselves."""
