"""The script that wrote the store needs SAELens, which the suite does not: it is no test."""

collect_ignore = ["write.py"]
