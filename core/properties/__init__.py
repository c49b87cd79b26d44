"""Table properties: names, defaults, allowed values, and what lake does with each.

Does not belong here: code that acts on a property.
"""
