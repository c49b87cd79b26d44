"""What every module may use: errors, outcomes, units, locations, clocks, settings, trust.

Nothing here knows Iceberg, a file format or a store. What needs one of these belongs to `spec` or `io`.

    raise RefusedError("the branch is protected", hint="choose another branch")
"""
