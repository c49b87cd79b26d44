"""Rewrite small files into large ones without changing a row."""
