"""The independent verifier: reads tables, groups rows, computes every model's value. It uses no algorithm's code."""
