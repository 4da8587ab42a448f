"""smartnoise-synth's AIM and MST in an environment of its own: cells in, cells out.

python ask_smartnoise_synth.py cells.npz aim|mst EPSILON DELTA SEED OUT.npz
"""

import json
import resource
import sys
import time
import warnings

import numpy as np
import pandas as pd

warnings.simplefilter("ignore")

from snsynth import Synthesizer  # noqa: E402
from snsynth.transform import LabelTransformer, TableTransformer  # noqa: E402


def main(path, method, epsilon, delta, seed, out):
    with np.load(path) as file:
        cells, sizes = file["cells"], file["sizes"]
    np.random.seed(int(seed))
    names = [f"c{i}" for i in range(len(sizes))]
    frame = pd.DataFrame(cells, columns=names)
    # The domain is public: every label is told, whether or not it occurs.
    labels = []
    for size in sizes:
        one = LabelTransformer(nullable=False)
        one.fit(list(range(int(size))))
        labels.append(one)
    transformer = TableTransformer(labels)
    start, worked = time.perf_counter(), time.process_time()
    maker = Synthesizer.create(method, epsilon=float(epsilon), delta=float(delta))
    maker.fit(frame, transformer=transformer, preprocessor_eps=0.0, categorical_columns=names)
    made = maker.sample(len(frame))
    seconds, processor = time.perf_counter() - start, time.process_time() - worked
    np.savez_compressed(out, cells=pd.DataFrame(made, columns=names).to_numpy(np.int64))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "processor": processor, "memory": memory}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
