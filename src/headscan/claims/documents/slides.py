"""The claims of the slides: the rows of slides.tsv beside this file."""

from headscan.claims.claim import enter_table

enter_table("slides")
