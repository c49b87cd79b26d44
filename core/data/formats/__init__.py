"""Data file formats, one package for each.

Code that several formats share belongs in `lake.core.data.columns` or `lake.core.data.rows`.
"""
