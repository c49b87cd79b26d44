"""Policies: what `lake maintain` may do to which table, when, and with which options.

Belongs here: the texts of policy files and of table properties, and what they say about one table. Does not belong
here: what a table needs (`core/maintain/health`) and doing it (`core/maintain/rounds`).

Terms:
    action: a verb of maintenance, such as ``compact``.
    rule: the settings that a file gives to the tables that a glob selects.
    policy: the rules of all files in effect.

Example:
    policy = Policy(policy_rules(document, "policy.toml", choices))
    compact = policy.of("db.t", table.properties, choices).actions["compact"]
    compact.window.is_open(now_ms)
"""
