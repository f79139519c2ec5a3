"""Pages, tables and plots from saved results; this package reads plain data only and never loads a
model.

- `present`: the functions by which results show themselves
- `kit`: the parts that all pages are made of, and the ways to show them
- `pages`: one module, or a few, for each kind of result
"""
