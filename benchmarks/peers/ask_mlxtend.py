"""mlxtend on a file of baskets: python ask_mlxtend.py FILE SUPPORT CONFIDENCE; prints the rules and seconds as JSON."""

import csv
import json
import sys
import time
from pathlib import Path

import pandas as pd
from mlxtend.frequent_patterns import apriori, association_rules, fpgrowth
from mlxtend.preprocessing import TransactionEncoder

path, support, confidence = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with Path(path).open(encoding="utf-8") as lines:
    baskets = [[cell.strip() for cell in row] for row in csv.reader(lines)]
encoder = TransactionEncoder()
frame = pd.DataFrame(encoder.fit(baskets).transform(baskets), columns=encoder.columns_)
answer = {}
for name, miner in (("fpgrowth", fpgrowth), ("apriori", lambda *a, **b: apriori(*a, **b, low_memory=True))):
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        itemsets = miner(frame, min_support=support, use_colnames=True)
        rules = association_rules(itemsets, metric="confidence", min_threshold=confidence)
        best = min(best, time.perf_counter() - start)
    answer[name] = {"itemsets": len(itemsets), "rules": len(rules), "seconds": best}
print(json.dumps(answer))
