"""Tables that stay in a Spark cluster: connected by address, planned on their twin, counted where they are."""

import shutil
import signal
import socket
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloister import rho
from cloister.dataset import Dataset as Data
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Organisation, Person, Version
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import datasets, ingest

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("spark")]

SCHEMA = """
unit: {name: patient, max_rows: 4}
tables:
  visits:
    unit: patient
    columns:
      ward: {type: text, categories: [cardiology, surgery]}
      age: {type: integer, bounds: [0, 100]}
"""
POLICY = """
dataset: visits
purposes: [health-research]
budget: {lifetime: {rho: 1}}
roles:
  everybody: {who: anyone, may: [see schema]}
"""
# A session with the plugin for Spark Connect is a server for others; its tables are in a catalogue that all share.
SERVER = """
import sys, time
from pyspark.sql import SparkSession
port, table, place = sys.argv[1:]
settings = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": port,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": place,
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
session.sql(f"CREATE TABLE visits USING parquet LOCATION '{table}'")
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a Spark Connect server with a table of 400 visits by 100 patients."""
    pytest.importorskip("grpc", reason="install Spark Connect: pip install 'cloister[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: on Debian, apt-get install openjdk-17-jre-headless")
    folder = tmp_path_factory.mktemp("cluster")
    rows = {"patient": [f"p{i % 100}" for i in range(400)], "ward": ["surgery"] * 400, "name": ["ZZMARKZZ"] * 400}
    (folder / "visits").mkdir()
    pq.write_table(pa.table({**rows, "age": [30 + i % 40 for i in range(400)]}), folder / "visits" / "part.parquet")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(port), str(folder / "visits"), str(folder / "warehouse")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder, start_new_session=True)
    try:
        assert server.stdout.readline() == b"ready\n", (folder / "log").read_text()[-2000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
        server.stdout.close()


@pytest.fixture
def hub(tmp_path, cluster):
    listed = f"Hospital={cluster.removeprefix('sc://')}"
    with Hub.create(Settings(folder=tmp_path / "hub", connect_hosts=listed)) as made:
        yield made


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # gRPC and PySpark warn about Python's garbage and each other's versions
def test_a_connected_spark_is_planned_on_its_twin_and_worked_on_in_place(hub, cluster):
    owner = Person(email="maria@x.example", name="Maria", roles=["data owner"])
    with hub.database.writing() as session:
        place = Organisation(name="Hospital")
        session.add(place)
        session.flush()
        owner.organisation_id = place.id
        session.add(owner)
    with hub.database.writing() as session:
        about = {"name": "visits", "title": "Visits", "about": "", "policy_text": POLICY, "schema_text": SCHEMA}
        dataset = datasets.create(hub, session, owner, **about)
    link = datasets.reach(hub, owner, dataset, cluster)
    with hub.database.writing() as session:
        made = datasets.new_version(hub, session, owner, dataset, schema_text=SCHEMA, link=link)
    assert ingest.prepare(hub, made.id) == "ready"
    with hub.database.reading() as session:
        made = session.get_one(Version, made.id)
    assert set(made.declared["visits"]) == {"patient", "ward", "age"}
    real, twin = datasets.open_for_work(hub, dataset, made, owner), datasets.open_twin(hub, dataset, made)
    account = hub.ledger.account("visits")
    question = "SELECT ward, AVG(age) FROM visits GROUP BY ward"
    plans = [Data(tables, account, "1").plan(question, spend=rho("0.1")) for tables in (real, twin)]
    assert str(plans[0]).replace(real.engine.place("visits"), "`visits`") == str(plans[1])
    own = real.again()
    counted = Data(own, account, "1").sql("SELECT COUNT(*) FROM visits", spend=rho("0.1")).item()
    own.close()
    assert abs(counted - 400) < 80
    assert real.engine.run(f"SELECT COUNT(*) AS n FROM {real.engine.place('visits')}").to_pylist() == [{"n": 400}]
    real.close()
