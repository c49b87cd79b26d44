"""Column values, and the description of a data file's columns, for all file formats.

This package contains column mapping by field id, type promotion, nullability, defaults, metrics and text encoding.
Code for the bytes of one file format belongs in `lake.core.data.formats`.

A *slice* is a range of rows of one data file; a *live file* is one that a snapshot contains.
"""
