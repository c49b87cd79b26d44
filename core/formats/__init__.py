"""Data file formats: one package per format.

Does not belong here: code that serves several formats (`lake.core.columns`, `lake.core.rows`).
"""
