"""The trusted core: losses, noise, mechanisms, accountants, ledger and receipts.

In the order of the work:

number, conversion, loss     privacy loss, as exact values
unit                         the unit of privacy
noise                        exact integers from the operating system's randomness
mechanisms                   noise with a stated privacy loss
accountant                   the composition of many losses
signing                      one byte string for a record, and a signature on it
ledger                       the durable record of every charge
measure                      the only path of data: charge, look, noise
filter                       several looks under one charge, and the split of its spend
release, receipt             the result, and its proof
errors                       every refusal and failure
"""
