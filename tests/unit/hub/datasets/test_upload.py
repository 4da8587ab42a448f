"""Uploads: in order, resumable, sealed, within limits."""

import gzip
import io
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Organisation, Person, Upload
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import unpack as unpacking
from cloister.hub.datasets import upload as uploads
from cloister.hub.datasets.unpack import unpack
from cloister.privacy.errors import BadForm, NotHere, NotNow, SealBroken, TooMany, UploadRefused

PIECE = uploads.SMALLEST_PIECE


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub", upload_gb=1)) as made:
        yield made


@pytest.fixture
def people(hub):
    with hub.database.writing() as session:
        hospital = Organisation(name="Hospital")
        session.add(hospital)
        session.flush()
        made = {
            name: Person(email=f"{name}@x.example", name=name, roles=roles, organisation_id=place)
            for name, roles, place in (
                ("owner", ["data owner"], hospital.id),
                ("provider", ["data provider"], hospital.id),
                ("stranger", ["data owner", "data provider"], None),
            )
        }
        session.add_all(made.values())
        session.flush()
        dataset = Dataset(
            name="visits",
            title="Visits",
            owner_id=made["owner"].id,
            organisation_id=hospital.id,
            budget={},
            wrapped_key=hub.keys.new_data_key("visits"),
        )
        session.add(dataset)
        session.flush()
        for one in made.values():
            session.refresh(one)
        session.refresh(dataset)
    return {**made, "dataset": dataset}


def begin(hub, people, size, file="visits.csv", who="owner"):
    with hub.database.writing() as session:
        return uploads.begin(hub, session, people[who], people["dataset"], table="visits", file=file, size=size)


def whole(hub, people, upload):
    return uploads.chunks(hub, upload, hub.keys.data_key(people["dataset"])).open(upload.size)


def test_pieces_in_order_make_the_file_again(hub, people):
    data = os.urandom(3 * PIECE + 5)
    upload = begin(hub, people, len(data))
    for at in range(0, len(data), PIECE):
        upload = uploads.receive(hub, people["owner"], upload.id, at, data[at : at + PIECE])
    assert (upload.state, upload.received) == ("complete", len(data))
    reader = whole(hub, people, upload)
    assert reader.read() == data
    buffered = io.BufferedReader(reader, 16)
    for at, size in ((0, 1), (PIECE - 1, 2), (2 * PIECE, 10), (len(data) - 3, 10)):
        buffered.seek(at)
        assert buffered.read(size) == data[at : at + size]


def test_nothing_readable_is_on_the_disk(hub, people):
    data = b"ZZMARKZZ,secret ward\n" * 10_000
    upload = begin(hub, people, len(data))
    uploads.receive(hub, people["owner"], upload.id, 0, data)
    files = [path for path in hub.folder.rglob("*") if path.is_file()]
    assert files
    assert not any(b"ZZMARKZZ" in path.read_bytes() for path in files)


def test_an_upload_goes_on_after_a_restart_where_it_was(hub, people, tmp_path):
    data = os.urandom(2 * PIECE)
    upload = begin(hub, people, len(data))
    uploads.receive(hub, people["owner"], upload.id, 0, data[:PIECE])
    with Hub.open(hub.settings) as again:
        with again.database.reading() as session:
            held, _ = uploads.find(session, people["owner"], upload.id)
        assert held.received == PIECE
        held = uploads.receive(again, people["owner"], upload.id, PIECE, data[PIECE:])
        assert whole(again, people, held).read() == data


def test_a_piece_that_was_written_but_not_counted_is_replaced(hub, people):
    data = os.urandom(2 * PIECE)
    upload = begin(hub, people, len(data))
    pieces = uploads.chunks(hub, upload, hub.keys.data_key(people["dataset"]))
    pieces.keep(pieces.write(0, os.urandom(PIECE)), 0)  # then the power went out
    uploads.receive(hub, people["owner"], upload.id, 0, data[:PIECE])
    upload = uploads.receive(hub, people["owner"], upload.id, PIECE, data[PIECE:])
    assert whole(hub, people, upload).read() == data


@pytest.mark.parametrize("offset", [0, 1, 2 * PIECE])
def test_a_wrong_offset_is_answered_with_the_right_one(hub, people, offset):
    upload = begin(hub, people, 3 * PIECE)
    uploads.receive(hub, people["owner"], upload.id, 0, bytes(PIECE))
    with pytest.raises(NotNow, match=f"at byte {PIECE},"):
        uploads.receive(hub, people["owner"], upload.id, offset, bytes(PIECE))


def test_pieces_that_are_too_small_too_large_or_too_many_are_refused(hub, people):
    upload = begin(hub, people, 20 * 2**20)
    for data in (b"", b"x", bytes(uploads.LARGEST_PIECE + 1)):
        with pytest.raises(UploadRefused):
            uploads.receive(hub, people["owner"], upload.id, 0, data)
    small = begin(hub, people, 10)
    with pytest.raises(UploadRefused, match="announced with 10 bytes"):
        uploads.receive(hub, people["owner"], small.id, 0, bytes(11))
    uploads.receive(hub, people["owner"], small.id, 0, bytes(10))
    with pytest.raises(NotNow, match="complete"):
        uploads.receive(hub, people["owner"], small.id, 10, bytes(1))


@pytest.mark.parametrize(
    ("file", "size", "problem"),
    [("v.exe", 9, "end with"), ("v.csv", 0, "empty"), ("v.csv", 10**9 + 1, "longer than 1 GB"), ("\n.csv", 9, "name")],
)
def test_a_file_of_the_wrong_form_or_size_is_refused_at_once(hub, people, file, size, problem):
    with pytest.raises(UploadRefused, match=problem):
        begin(hub, people, size, file)


def test_a_table_needs_a_name(hub, people):
    with hub.database.writing() as session, pytest.raises(BadForm):
        uploads.begin(hub, session, people["owner"], people["dataset"], table="", file="v.csv", size=1)


def test_owner_and_provider_of_the_organisation_may_send_and_nobody_else(hub, people):
    begin(hub, people, 10)
    sent = begin(hub, people, 10, who="provider")
    with pytest.raises(NotHere):
        begin(hub, people, 10, who="stranger")
    with hub.database.reading() as session, pytest.raises(NotHere):
        uploads.find(session, people["stranger"], sent.id)
    with pytest.raises(NotHere):
        uploads.receive(hub, people["stranger"], sent.id, 0, bytes(10))
    with hub.database.reading() as session, pytest.raises(NotHere):
        uploads.find(session, people["owner"], "0" * 32)


def test_so_many_uploads_wait_and_no_more(hub, people):
    for _ in range(20):
        begin(hub, people, 10)
    with pytest.raises(TooMany):
        begin(hub, people, 10)


def test_room_is_kept_for_all_that_were_announced(hub, people, monkeypatch):
    size, room = 10**8, 8 * 10**8  # three times a hundred megabytes, twice, and some to spare
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**10, 0, room))
    first = begin(hub, people, size)
    begin(hub, people, size, who="provider")
    with pytest.raises(UploadRefused, match="not enough room"):
        begin(hub, people, size, who="provider")
    with hub.database.writing() as session:
        uploads.cancel(hub, session, people["owner"], first.id)
    begin(hub, people, size)


def test_one_persons_files_take_half_of_the_room_and_those_that_never_come_take_none(hub, people, monkeypatch):
    size, room = 10**8, 14 * 10**8
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**10, 0, room))
    for _ in range(2):
        begin(hub, people, size)
    with pytest.raises(UploadRefused, match="half of this hub's room"):
        begin(hub, people, size)
    begin(hub, people, size, who="provider")
    with hub.database.writing() as session:  # two hours later, and no byte has come
        session.execute(sa.update(Upload).values(created=Upload.created - 7200))
    begin(hub, people, size)


def test_cancelling_removes_the_pieces(hub, people):
    upload = begin(hub, people, 2 * PIECE)
    uploads.receive(hub, people["owner"], upload.id, 0, bytes(PIECE))
    with hub.database.writing() as session:
        uploads.cancel(hub, session, people["owner"], upload.id)
    assert not (hub.folder / "uploads" / upload.id).exists()
    with pytest.raises(NotNow, match="cancelled"):
        uploads.receive(hub, people["owner"], upload.id, PIECE, bytes(PIECE))


def test_tidying_gives_up_what_is_a_week_old_and_keeps_the_rest(hub, people):
    old, new = begin(hub, people, 2 * PIECE), begin(hub, people, 2 * PIECE)
    for one in (old, new):
        uploads.receive(hub, people["owner"], one.id, 0, bytes(PIECE))
    with hub.database.writing() as session:
        session.execute(sa.update(Upload).where(Upload.id == old.id).values(created=0.0))
    assert uploads.tidy(hub) == 1
    assert [path.name for path in (hub.folder / "uploads").iterdir()] == [new.id]


@pytest.mark.parametrize("harm", ["exchange", "remove", "copy from another", "change"])
def test_pieces_that_were_tampered_with_are_noticed(hub, people, harm):
    made = []
    for _ in range(2):
        upload = begin(hub, people, 3 * PIECE)
        for at in range(0, 3 * PIECE, PIECE):
            upload = uploads.receive(hub, people["owner"], upload.id, at, os.urandom(PIECE))
        made.append(upload)
    here, other = (hub.folder / "uploads" / one.id for one in made)
    first, second = f"{0:016x}", f"{PIECE:016x}"
    if harm == "exchange":
        one, two = (here / first).read_bytes(), (here / second).read_bytes()
        (here / first).write_bytes(two)
        (here / second).write_bytes(one)
    elif harm == "remove":
        (here / second).unlink()
    elif harm == "copy from another":
        (here / second).write_bytes((other / second).read_bytes())
    else:
        raw = bytearray((here / second).read_bytes())
        raw[100] ^= 1
        (here / second).write_bytes(raw)
    with pytest.raises(SealBroken):
        whole(hub, people, made[0]).read()


# Unpacking


def rows(data, name, columns, limit=10**8):
    return pa.concat_tables(unpack(io.BytesIO(data), name, limit).tables(columns)).to_pydict()


def test_csv_is_text_whatever_it_looks_like():
    data = b"id;ward;age\n1;surgery;007\n2;;1e3\n"
    assert rows(data, "v.csv", ["id", "age"]) == {"id": ["1", "2"], "age": ["007", "1e3"]}
    assert unpack(io.BytesIO(data), "v.csv", 99).schema.names == ["id", "ward", "age"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_csv_with_quotes_line_breaks_and_a_byte_order_mark(end):
    data = b"\xef\xbb\xbfid,text" + end + b'1,"a ""b"", c"' + end + b'2,"two' + end + b'lines"' + end
    assert rows(data, "v.csv", ["id", "text"])["id"] == ["1", "2"]
    assert rows(data, "v.csv", ["text"])["text"][0] == 'a "b", c'


def test_bad_lines_are_left_out_and_short_ones_filled_up_as_the_engine_does(tmp_path):
    from cloister.data.engines.duckdb import DuckDB

    data = b"id,ward,age\n1,surgery,3\n2\n3,a,b,c,d\n\xff\xfe,x,1\n5,maternity,9\n"
    (tmp_path / "v.csv").write_bytes(data)
    engine = DuckDB()
    engine.add_csv("v", tmp_path / "v.csv")
    assert rows(data, "v.csv", ["id", "ward", "age"]) == engine.run("SELECT * FROM v").to_pydict()
    engine.close()


def test_a_long_file_is_read_in_segments_without_losing_a_line(monkeypatch):
    monkeypatch.setattr(unpacking, "_SEGMENT", 1000)
    lines = [f'{i},"line\n{i} with ""quotes"""' for i in range(2000)]
    data = ("id,text\n" + "\n".join(lines) + "\n").encode()
    found = rows(data, "v.csv", ["id", "text"])
    assert found["id"] == [str(i) for i in range(2000)]
    assert found["text"][7] == 'line\n7 with "quotes"'


@pytest.mark.parametrize("cells", [1, 10_000])
@pytest.mark.parametrize("length", [3, 850_000, 1_200_000])
def test_a_long_text_at_the_end_of_a_segment_hides_no_other_line(length, cells, monkeypatch):
    """Segments were cut within such a text, and quotes were turned around in all later lines."""
    monkeypatch.setattr(unpacking, "_SEGMENT", 2**20)
    monkeypatch.setattr(unpacking, "_CELLS", 1_000 * cells)
    before, behind = ([f"{name}{i},{'w' * 900}\n" for i in range(2000)] for name in "pq")
    text = '"' + "z\n" * length + '"'
    found = rows(f"id,t\n{''.join(before)}evil,{text}\n{''.join(behind)}".encode(), "v.csv", ["id", "t"])
    ids = [f"{name}{i}" for name in "pq" for i in range(2000)]
    assert [one for one in found["id"] if one != "evil"] == ids
    assert ("evil" in found["id"]) == (2 * length + 7 <= 2_000_000)


@pytest.mark.parametrize("first", [b"", b"a,a\n", b"a,,b\n", b"\xff\xfe,b\n", b"A,a\n"])
def test_a_header_that_names_no_columns_is_refused(first):
    with pytest.raises(UploadRefused, match="first line"):
        unpack(io.BytesIO(first), "v.csv", 99)


def test_gzip_is_unpacked():
    data = gzip.compress(b"id,ward\n" + b"1,surgery\n" * 1000)
    assert rows(data, "v.csv.gz", ["ward"])["ward"] == ["surgery"] * 1000


def test_broken_gzip_is_refused():
    data = gzip.compress(os.urandom(100_000))
    for broken in (b"id,ward\n", data[: len(data) // 2]):
        with pytest.raises(UploadRefused, match=r"gzip|first line"):
            rows(broken, "v.csv.gz", ["ward"])


def test_a_gzip_bomb_is_stopped_by_its_ratio():
    bomb = gzip.compress(b"id\n" + b"0\n" * (60 * 2**20))
    with pytest.raises(UploadRefused, match="200 times"):
        for _ in unpack(io.BytesIO(bomb), "v.csv.gz", 10**12).tables(["id"]):
            pass


def test_more_than_the_limit_is_refused():
    with pytest.raises(UploadRefused, match="more than 50000 bytes"):
        rows(b"id\n" + b"12345678\n" * 200_000, "v.csv", ["id"], limit=50_000)


def parquet(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def test_parquet_keeps_its_types_and_only_the_wanted_columns():
    table = pa.table({"id": [1, 2], "ward": pa.array(["a", None]).dictionary_encode(), "nested": [[1], [2]]})
    opened = unpack(io.BytesIO(parquet(table)), "v.parquet", 10**6)
    found = pa.concat_tables(opened.tables(["id", "ward"]))
    assert found.schema == opened.kept(["ward", "id"]) == pa.schema([("id", pa.int64()), ("ward", pa.string())])
    assert found.to_pydict() == {"id": [1, 2], "ward": ["a", None]}


def test_text_that_is_no_text_becomes_null():
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"ok"], pa.binary()).buffers())
    assert rows(parquet(pa.table({"t": bad})), "v.parquet", ["t"]) == {"t": [None, "ok"]}


def test_a_parquet_bomb_is_stopped_by_what_it_declares_and_by_what_it_gives():
    data = parquet(pa.table({"n": pa.array([7] * 1_000_000)}))
    assert len(data) < 100_000
    with pytest.raises(UploadRefused):
        rows(data, "v.parquet", ["n"], limit=1_000_000)
    with pytest.raises(UploadRefused, match="declare"):
        unpack(io.BytesIO(parquet(pa.table({"t": ["x" * 1000 + str(i) for i in range(2000)]}))), "v.parquet", 1000)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", os.urandom(1000)])
def test_what_is_no_parquet_is_refused(data):
    with pytest.raises(UploadRefused, match="not whole Parquet"):
        rows(data, "v.parquet", ["x"])


def test_a_cut_parquet_is_refused_without_a_word_of_its_content():
    data = parquet(pa.table({"t": ["ZZMARKZZ"] * 1000}), compression="none", use_dictionary=False)
    broken = data[:50] + bytes(200) + data[250:]
    with pytest.raises(UploadRefused) as caught:
        rows(broken, "v.parquet", ["t"])
    assert "ZZMARK" not in str(caught.value)
    assert caught.value.__cause__ is None


# In pieces, by bytes, within limits


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_parquet_in_several_pieces_is_read_whole(hub, people, pieces):
    rows = {"x": list(range(60_000)), "t": [os.urandom(6).hex() for _ in range(60_000)]}
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink, row_group_size=9_000)
    raw = sink.getvalue()
    upload = begin(hub, people, len(raw), "visits.parquet")
    step = -(-len(raw) // pieces)
    assert step > PIECE
    for at in range(0, len(raw), step):
        upload = uploads.receive(hub, people["owner"], upload.id, at, raw[at : at + step])
    opened = unpack(whole(hub, people, upload), "visits.parquet", 10**9)
    assert pa.concat_tables(opened.tables(["x", "t"])).to_pydict() == rows


def test_a_value_that_stands_in_many_rows_is_measured_before_it_is_written_out():
    sink = io.BytesIO()
    named = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["x" * 8_000_000])
    pq.write_table(pa.table({"t": named}), sink, compression="zstd")
    raw = sink.getvalue()
    assert len(raw) < 10_000
    rows = unpack(io.BytesIO(raw), "t.parquet", 10**9).tables(["t"])
    with pytest.raises(UploadRefused, match="unpacks to more than"):
        next(rows)
    before, sizes = pa.total_allocated_bytes(), []
    for table in unpack(io.BytesIO(raw), "t.parquet", 10**11).tables(["t"]):
        sizes.append(table.nbytes)
        assert pa.total_allocated_bytes() - before < 400_000_000
        del table
        if sum(sizes) > 3 * 10**8:
            break
    assert 50_000_000 < max(sizes) < 100_000_000


def test_a_text_of_more_than_some_megabytes_is_refused(monkeypatch):
    monkeypatch.setattr(unpacking, "_LINE", 1000)
    sink = io.BytesIO()
    pq.write_table(pa.table({"t": ["a", "x" * 1001]}), sink)
    with pytest.raises(UploadRefused, match="of text"):
        list(unpack(io.BytesIO(sink.getvalue()), "t.parquet", 10**9).tables(["t"]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_of_every_kind_come_out_as_they_went_in(kind):
    values = ["a", None, "", "long" * 500, "a", "ä"]
    if kind == pa.binary():
        values = [None if one is None else one.encode() for one in values]
    sink = io.BytesIO()
    pq.write_table(pa.table({"t": pa.array(values, kind), "n": pa.array([None] * 6), "i": range(6)}), sink)
    table = pa.concat_tables(unpack(io.BytesIO(sink.getvalue()), "t.parquet", 10**9).tables(["t", "n", "i"]))
    assert table.to_pydict() == {"t": values, "n": [None] * 6, "i": list(range(6))}
    assert table.schema.field("n").type == pa.string()


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch):
    class Endless(io.RawIOBase):
        given = 0

        def readable(self):
            return True

        def seekable(self):
            return False

        def readinto(self, buffer):
            buffer[:] = b"x" * len(buffer)
            Endless.given += len(buffer)
            return len(buffer)

        def tell(self):
            return Endless.given

    class Begun(Endless):
        def readinto(self, buffer):
            count = super().readinto(buffer)
            if Endless.given == count:
                buffer[:4] = b"a,b\n"
            return count

    with pytest.raises(UploadRefused, match="a line has more than 16 MB"):
        list(unpack(Begun(), "t.csv", 10**12).tables(["a"]))
    assert Endless.given < 100_000_000


def test_short_lines_of_a_wide_table_are_read_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(unpacking, "_CELLS", 10_000)
    seen, real = [], unpacking._Pipe.__init__
    monkeypatch.setattr(unpacking._Pipe, "__init__", lambda self, data: (seen.append(data), real(self, data))[1])
    names = [f"c{i}" for i in range(100)]
    lines = [f"v{i}" if i % 7 else f'"v{i}\nb"' for i in range(5_000)]
    raw = (",".join(names) + "\n" + "\n".join(lines) + "\n").encode()
    table = pa.concat_tables(unpack(io.BytesIO(raw), "t.csv", 10**9).tables(["c0", "c99"]))
    assert table.column("c0").to_pylist() == [f"v{i}" if i % 7 else f"v{i}\nb" for i in range(5_000)]
    assert table.column("c99").null_count == 5_000
    assert max(one.count(b"v") for one in seen) * 100 <= 10_000  # a line has one v, and may have two line breaks
    assert b"".join(seen) == raw.partition(b"\n")[2]
