"""Linkage of a table with names, and a test that a row could have come from many people. Other attacks: attack/."""
