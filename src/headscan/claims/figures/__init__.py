"""The figures of the three documents, a module each."""
