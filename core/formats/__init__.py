"""Data file formats, one package for each.

Code that several formats share belongs in `lake.core.columns` or `lake.core.rows`.
"""
