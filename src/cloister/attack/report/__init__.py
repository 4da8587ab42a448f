"""Report of findings: pictures, page.

charts.py    success beside guessing, curve on logarithmic axes, bound on epsilon beside the claim, risk of records
page.py      one page of one or several findings; JSON
interval.py  a number with its interval, in words
"""
