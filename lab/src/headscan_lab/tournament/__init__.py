"""The tournament: arms of training side by side, compared where their losses are equal.

- `plan`: the sizes; `race`: one run; `moment`: what is measured on the way; `workers`: many runs on
  several processors
- `table`: what the runs of an arm say together; `sentences`: that in words, never stronger than it
- `verb`: `headscan tournament`
"""
