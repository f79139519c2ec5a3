"""The claims of the paper: the rows of paper.tsv beside this file."""

from headscan.claims.claim import enter_table

enter_table("paper")
