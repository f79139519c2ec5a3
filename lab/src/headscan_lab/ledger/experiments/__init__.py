"""The experiments of the ledger, by subject; each module enters its statements."""
