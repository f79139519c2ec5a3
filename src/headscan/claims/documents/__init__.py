"""The three documents, a table of claims each."""
