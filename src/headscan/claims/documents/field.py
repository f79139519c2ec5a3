"""What is held of leaked states: the rows of field.tsv beside this file."""

from headscan.claims.claim import enter_table

enter_table("field")
