"""The claims of the documents: the rows of the tables in data/, a document a table."""

from __future__ import annotations

from headscan_lab.ledger.claim import enter_table

for _document in ("article", "field", "paper", "slides"):
    enter_table(_document)
