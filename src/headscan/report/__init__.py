"""Pages, tables and plots from saved results; this package reads plain data only and never loads a
model.

- `present.Report`: what the façade installs, so that results show themselves
- `kit`: the parts that all pages are made of, and the four ways to show them
- `pages`: one module a kind of result
"""
