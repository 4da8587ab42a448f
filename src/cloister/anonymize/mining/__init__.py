"""Frequent itemsets, association rules, rule hiding and output downgrading."""
