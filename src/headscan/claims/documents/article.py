"""The claims of the article: the rows of article.tsv beside this file."""

from headscan.claims.claim import enter_table

enter_table("article")
