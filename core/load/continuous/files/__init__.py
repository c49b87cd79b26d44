"""Continuous loads of files that arrive in a folder or bucket: listing, epochs, disposal of loaded files.

What all continuous loads share is in `lake.core.load.continuous`.
"""
