"""Attacks on synthetic tables, with rows that the generator did not read as the measure of chance.

    attack_sample.py  all of them, on as many rows as can be afforded
    copies.py         rows that occur in the synthetic table with all values
    closeness.py      distance to the closest row
    membership.py     guesses who was in the table
    singling_out.py   rules that match exactly one person
      coded_rows.py   tables as public codes and positions, which all of them take

`synth.score` runs them, and `score.findings()` returns them as findings.

Privacy: none. Attacks read real rows without noise; their results are for the owner.
"""
