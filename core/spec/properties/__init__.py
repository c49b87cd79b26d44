"""Table properties: names, defaults, allowed values, and how lake treats each.

Does not belong here: code that acts on a property.
"""
