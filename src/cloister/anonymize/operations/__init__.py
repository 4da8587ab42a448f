"""Operations on columns and rows. Each takes rows and returns `Operated`: rows, log, and a note on what it leaves open.

operated.py             Operated, pipe, step; numbers of a column
masking.py              suppression of columns, rows and cells; masking; truncation of text
rounding.py             rounding, top and bottom coding, global recoding, truncation of dates
noise.py                additive and multiplicative noise; the spectral filter that removes part of it
reconstruction.py       the distribution behind noisy values (Agrawal and Srikant)
learning_from_noise.py  naive Bayes and decision tree on reconstructed distributions
swapping.py             rank swapping, nearest-neighbour swapping
post_randomisation.py   transition matrices, invariant matrices, estimated frequencies
microaggregation.py     MDAV, and the optimum for a single column
anatomy.py              quasi-identifiers and sensitive values in two tables
pseudonyms.py           keyed pseudonyms, rotation of keys
format_preserving.py    FF1 of NIST SP 800-38G
dictionary_attack.py    the attack on salted hashes; nothing here protects
replacement.py          values drawn from a fitted distribution, label encoding
sampling.py             samples of rows, random order
"""
