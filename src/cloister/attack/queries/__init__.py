"""Attacks on answered questions.

differencing.py    two exact averages reveal the person between them
averaging.py       repeating a query averages the noise away
tracker.py         refused answers, computed from allowed ones
reconstruction.py  tables consistent with published statistics
timing.py          how much the time of an answer tells
"""
