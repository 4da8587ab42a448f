"""The trusted core: small enough to read in an afternoon.

In the order of the work:

number, conversion, loss     privacy paid, as exact values
unit                         whom we protect
noise                        exact integers from the operating system's randomness
mechanisms                   noise that becomes a promise
accountant                   what many promises add up to
canonical, signing           one spelling for a record, and a signature on it
ledger                       the durable account of every spend
measure                      the one way data goes: charge, look, noise
release, receipt             what comes out, and its proof
errors                       every way we say no
"""
