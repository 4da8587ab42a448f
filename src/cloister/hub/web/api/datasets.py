"""Dataset API: facts, mock data, versions, and the owner's actions."""

import io
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from cloister.hub.core.models import Version
from cloister.hub.datasets import datasets
from cloister.hub.datasets.dataset_view import DatasetView, require_schema, visible_dataset, visible_datasets
from cloister.hub.datasets.mock import mock_table
from cloister.hub.jobs.trust_model import trust_model_of
from cloister.hub.web.context import Visitor, scoped
from cloister.privacy.errors import NotHere, NotNow

__all__ = ["router"]

router = APIRouter(tags=["datasets"])
Reader = Annotated[Visitor, Depends(scoped("read"))]
Sharer = Annotated[Visitor, Depends(scoped("share"))]
Name = Annotated[str, Path(max_length=200)]


class DatasetFacts(BaseModel):
    """Facts of a dataset that the caller may see."""

    name: str
    title: str
    about: str
    owner: str
    organisation: str | None
    trust: str = Field(description="where work on it runs")
    mine: bool = Field(description="whether the one who asks owns it")
    paused: bool
    version: int | None = Field(description="the newest version that is ready")
    purposes: list[str] = Field(description="what it may be used for")
    budget: dict[str, Any] = Field(description="what all answers together may cost")
    left: dict[str, Any] = Field(description="what is left of it")


class DatasetList(BaseModel):
    """Datasets that the caller may see."""

    datasets: list[DatasetFacts]


class NewDataset(BaseModel):
    """Dataset to be shared. Nothing is allowed that its policy does not allow."""

    name: str = Field(max_length=60, description="small letters, digits, _ and -; for good")
    title: str = Field("", max_length=200)
    about: str = Field("", max_length=20_000)
    policy: str = Field(max_length=200_000, description="YAML")
    schema_: str = Field("", alias="schema", max_length=1_000_000, description="YAML; may come later")


class SchemaText(BaseModel):
    """Public facts of the tables that the caller may see."""

    version: int
    schema_: str = Field(alias="schema", serialization_alias="schema", description="YAML")


class NewVersion(BaseModel):
    """New version of the tables: uploaded files, or an address where they stay."""

    uploads: dict[str, str] = Field(default_factory=dict, max_length=200, description="table → upload")
    schema_: str = Field("", alias="schema", max_length=1_000_000, description="YAML; the last one unless given")
    address: str = Field("", max_length=2000, description="PostgreSQL, a folder of Parquet or Spark, instead of files")


class VersionFacts(BaseModel):
    """Version, as its owner sees it."""

    number: int
    state: str = Field(description="draft, preparing, ready, failed")
    problem: str
    place: str = Field(description="sealed here, or where it stays")
    created: float


class Pause(BaseModel):
    """Pause or resume a dataset."""

    paused: bool


@router.get("/api/datasets")
def list_datasets(visitor: Reader) -> DatasetList:
    """Return the datasets that the caller may see."""
    with visitor.hub.database.reading() as session:
        views = visible_datasets(visitor.hub, session, visitor.who, visitor.environment)
        return DatasetList(datasets=[_facts(visitor, view) for view in views])


@router.post("/api/datasets", status_code=201)
def create_dataset(visitor: Sharer, given: NewDataset) -> DatasetFacts:
    """Share a dataset: its policy and its account. Its tables are uploaded afterwards."""
    datasets.examine(visitor.hub, visitor.who, policy_text=given.policy, schema_text=given.schema_)
    with visitor.hub.database.writing() as session:
        datasets.create(
            visitor.hub,
            session,
            visitor.who,
            name=given.name,
            title=given.title,
            about=given.about,
            policy_text=given.policy,
            schema_text=given.schema_,
        )
        return _facts(visitor, visible_dataset(visitor.hub, session, visitor.who, given.name, visitor.environment))


@router.get("/api/datasets/{name}")
def show_dataset(visitor: Reader, name: Name) -> DatasetFacts:
    """Return the facts of a dataset that the caller may see."""
    return _facts(visitor, _seen(visitor, name))


@router.delete("/api/datasets/{name}", status_code=204)
def delete_dataset(visitor: Sharer, name: Name) -> None:
    """Shred a dataset: erase its key and remove its files, permanently."""
    with visitor.hub.database.writing() as session:
        datasets.delete(visitor.hub, session, visitor.who, datasets.owned(session, name, visitor.who))


@router.post("/api/datasets/{name}/pause")
def pause_dataset(visitor: Sharer, name: Name, given: Pause) -> DatasetFacts:
    """Pause work on a dataset, or resume it."""
    with visitor.hub.database.writing() as session:
        datasets.pause(visitor.hub, session, visitor.who, datasets.owned(session, name, visitor.who), given.paused)
    return _facts(visitor, _seen(visitor, name))


@router.get("/api/datasets/{name}/schema", response_model_by_alias=True)
def show_schema(visitor: Reader, name: Name) -> SchemaText:
    """Return the public facts of its tables that the caller may see."""
    sight = _with_schema(visitor, name, "schema.seen")
    assert sight.version is not None and sight.schema is not None  # noqa: PT018
    return SchemaText(version=sight.version.number, schema=sight.schema.dump())


@router.get(
    "/api/datasets/{name}/mock/{table}",
    response_class=Response,
    responses={200: {"content": {"application/vnd.apache.arrow.stream": {}}}},
)
def mock(
    visitor: Reader,
    name: Name,
    table: Name,
    rows: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    seed: Annotated[int, Query(ge=0, le=2**31)] = 1,
) -> Response:
    """Return mock rows, from the schema alone, as an Arrow stream: to try queries for free.

    There are fewer than asked for if they could have more than a million cells or 16 MB; the metadata says so.
    """
    import pyarrow as pa

    schema = _with_schema(visitor, name, "mock.made").schema
    if schema is None or table not in schema.tables:
        raise NotHere("there is no such table.")
    arrow_table, sink = mock_table(schema, table, rows, seed), io.BytesIO()
    with pa.ipc.new_stream(sink, arrow_table.schema) as writer:
        writer.write_table(arrow_table)
    return Response(sink.getvalue(), media_type="application/vnd.apache.arrow.stream")


@router.get("/api/datasets/{name}/versions")
def list_versions(visitor: Reader, name: Name) -> list[VersionFacts]:
    """Return its versions, the newest first; for its owner."""
    with visitor.hub.database.reading() as session:
        dataset = datasets.owned(session, name, visitor.who)
        return [_version(version) for version in datasets.versions(session, dataset)]


@router.post("/api/datasets/{name}/versions", status_code=202)
def new_version(visitor: Sharer, name: Name, given: NewVersion) -> VersionFacts:
    """Create a version; a worker checks and seals it."""
    link = datasets.examine_version(visitor.hub, visitor.who, name, given.schema_, given.address)
    with visitor.hub.database.writing() as session:
        version = datasets.new_version(
            visitor.hub,
            session,
            visitor.who,
            datasets.owned(session, name, visitor.who),
            schema_text=given.schema_,
            uploads=given.uploads,
            link=link,
        )
        return _version(version)


@router.get("/api/datasets/{name}/versions/{number}")
def show_version(visitor: Reader, name: Name, number: int) -> VersionFacts:
    """Return one version; for its owner."""
    with visitor.hub.database.reading() as session:
        dataset = datasets.owned(session, name, visitor.who)
        match = next((version for version in datasets.versions(session, dataset) if version.number == number), None)
    if match is None:
        raise NotHere("there is no such version.")
    return _version(match)


def _seen(visitor: Visitor, name: str) -> DatasetView:
    with visitor.hub.database.reading() as session:
        return visible_dataset(visitor.hub, session, visitor.who, name, visitor.environment)


def _with_schema(visitor: Visitor, name: str, action: str) -> DatasetView:
    sight = _seen(visitor, name)
    require_schema(visitor.hub, visitor.who, sight, action, version=sight.version.number if sight.version else None)
    if sight.problem is not None:
        raise sight.problem
    if sight.schema is None:
        raise NotNow(f"the dataset {sight.dataset.name} has no tables yet.")
    return sight


def _facts(visitor: Visitor, sight: DatasetView) -> DatasetFacts:
    dataset = sight.dataset
    return DatasetFacts(
        name=dataset.name,
        title=dataset.title,
        about=dataset.about,
        owner=dataset.owner.name,
        organisation=dataset.organisation.name if dataset.organisation else None,
        trust=trust_model_of(dataset.trust).title,
        mine=sight.mine,
        paused=dataset.paused,
        version=None if sight.version is None else sight.version.number,
        purposes=[] if sight.policy is None else list(sight.policy.purposes),
        budget=dataset.budget,
        left=visitor.hub.ledger.account(dataset.name).left.to_json(),
    )


def _version(version: Version) -> VersionFacts:
    return VersionFacts(
        number=version.number,
        state=version.state,
        problem=version.problem,
        place=version.source.get("place", "sealed here"),
        created=version.created,
    )
