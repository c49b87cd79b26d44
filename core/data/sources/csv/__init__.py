"""CSV sources: their rows as texts and as values of a table; the columns that the texts show.

The forms of numbers, dates and NULL do not belong here (`lake.core.data.sources.text_forms`).
"""
