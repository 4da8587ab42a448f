"""Private synthetic data: tables that resemble the real one, with a privacy guarantee and a score.

    from cloister import synth, epsilon
    table = synth.aim(ds, spend=epsilon(1, delta="1e-9"), rows=30_000)      # -> SyntheticTable
    table.to_parquet("visits-synthetic.parquet")                            # and visits-synthetic.parquet.side.json

Stages of a synthesis: axis.py, domain.py (columns as public cells) → run.py (one charge, before any row is read) →
marginals.py (counts in the engine, exact noise, private selection) → the generator's own file in generators/ →
coarsening.py (coarser cells for noisy numbers) → junction_tree.py, inference.py, marginal_oracle.py (one model of all
columns; latent.py is another kind) → sampling.py (rows from the model) → table.py (SyntheticTable: a release of rows,
with a metadata file).

    generators    histogram, one_column, two_way, m_way    the textbook's, corrected: one marginal of few columns
                  independent   every column by itself: the baseline
                  mst           a tree of the strongest pairs (Chow-Liu, chosen privately)
                  aim           marginals selected one after the other where the model is worst
                  privbayes     a network: each column given a few before it
                  mixture       latent classes of rows, from all pairs: for many columns with few values
                  mwem          weights on all cells of a small domain, guided by a workload
                  mggm          Gaussians of groups of rows, for sets of correlated columns
                  ron_gauss     a Gaussian in a few random directions
                  two_tables    parents and children with matching keys, under one charge
    cells         bins=16, bins={"age": [0, 18, 65]}, or bins=PrivateCuts(16): cuts measured within the spend
    around them   Pipeline (stages, tests of a release, recorded verdicts), experiment.evaluate (the case study)

    before and after         plan (what would be measured, at no cost), read_table (read a released table)
    the owner's view         score (utility and attacks), gate (may it be released?), link (names joined)
    with their own charge    publishable_score (errors that may be published), choose (among several tables)
    to compare with          negatives, deniability: tables that are labelled not private

Every generator has one signature, and one file in generators/:

    name(ds, *, spend, rows=None, columns=None, table=None, bins=32, progress=None, random_state=None, …own options)

and is a few lines: a function `steps(survey, progress) -> GeneratorResult` that reads rows only through a `Measurer`,
passed to `run.synthesise`. Rows are sampled from the model that it returns: post-processing, at no cost.

Names are imported on first use.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.synth.domain.cuts import PrivateCuts
    from cloister.synth.generators.aim import aim
    from cloister.synth.generators.histogram import histogram
    from cloister.synth.generators.independent import independent
    from cloister.synth.generators.m_way import m_way, one_column, two_way
    from cloister.synth.generators.mggm import mggm
    from cloister.synth.generators.mixture import mixture
    from cloister.synth.generators.mst import mst
    from cloister.synth.generators.mwem import mwem
    from cloister.synth.generators.privbayes import privbayes
    from cloister.synth.generators.ron_gauss import ron_gauss
    from cloister.synth.generators.two_tables import TwoTables, two_tables
    from cloister.synth.output.shared_table import HandedTable, read_table
    from cloister.synth.output.table import SyntheticTable
    from cloister.synth.pipeline import Pipeline
    from cloister.synth.planning import plan
    from cloister.synth.scoring.gate import gate
    from cloister.synth.scoring.publishable import publishable_score
    from cloister.synth.scoring.risk.linkage import link
    from cloister.synth.scoring.score import Score, score
    from cloister.synth.scoring.selection import choose
    from cloister.synth.scoring.verdict import Limits, Verdict, judge

__all__ = [
    "histogram",
    "one_column",
    "two_way",
    "m_way",
    "independent",
    "mst",
    "aim",
    "privbayes",
    "mixture",
    "mwem",
    "mggm",
    "ron_gauss",
    "two_tables",
    "TwoTables",
    "PrivateCuts",
    "Pipeline",
    "SyntheticTable",
    "score",
    "Score",
    "gate",
    "judge",
    "Verdict",
    "Limits",
    "publishable_score",
    "choose",
    "plan",
    "read_table",
    "HandedTable",
    "link",
]

# No file of this folder may share a name with what is exported here: importing it would put the module in its place.
__getattr__, __dir__ = door(__name__)
