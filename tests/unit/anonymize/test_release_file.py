"""A release is written whole and as its readers read it, or not at all."""

import contextlib
import json
import os

import pyarrow as pa
import pytest

from cloister.anonymize.models import FrequencyDiversity, KAnonymity, TCloseness
from cloister.anonymize.release import mondrian
from cloister.privacy.errors import BadInput, NotPrivate

AGES = [20, 20, 20, 20, 50, 50, 50, 50]


def made(disease, require, **options):
    rows = pa.table({"age": AGES, "disease": disease})
    return mondrian(rows, require=require, quasi=["age"], sensitive=["disease"], **options)


def files(folder):
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def test_missing_and_empty_values_are_refused_in_csv_and_kept_apart_in_parquet(tmp_path):
    release = made(
        ["", None, "", None, "flu", "flu", "cold", "cold"], [KAnonymity(4), FrequencyDiversity(2, "disease")]
    )
    with pytest.raises(BadInput, match="missing values and empty texts"):
        release.to_csv(tmp_path / "r.csv")
    assert files(tmp_path) == {}
    release.to_parquet(tmp_path / "r.parquet")
    assert set(files(tmp_path)) == {"r.parquet", "r.parquet.anonymized.json"}


@pytest.mark.parametrize("alike", [["NA", None], ["1", "1.0"], ["null", "nan"]])
def test_values_that_a_reader_of_csv_takes_for_one_are_refused(tmp_path, alike):
    release = made([*alike, *alike, "2", "2", "3", "3"] if alike[0] == "1" else [*alike, *alike, *"aabb"],
                   [KAnonymity(4), FrequencyDiversity(2, "disease")])  # fmt: skip
    with pytest.raises(NotPrivate, match="Write Parquet"):
        release.to_csv(tmp_path / "r.csv")
    assert files(tmp_path) == {}
    release.to_parquet(tmp_path / "r.parquet")


@pytest.mark.parametrize(
    "disease",
    [
        pa.array(["None", None, "None", None, *"aabb"]),
        pa.array(["<NA>", None, "<NA>", None, *"aabb"]),
        pa.array([2**53, 2**53 + 1] * 2 + [None, 3] * 2),
        pa.array([2**60, 2**60 + 1] * 4),
    ],
)
def test_values_that_data_frames_take_for_missing_or_for_one_double_are_refused(tmp_path, disease):
    release = made(disease, [KAnonymity(4), FrequencyDiversity(2, "disease")])
    with pytest.raises(NotPrivate, match="Write Parquet"):
        release.to_csv(tmp_path / "r.csv")
    assert files(tmp_path) == {}
    release.to_parquet(tmp_path / "r.parquet")


def test_a_process_that_ends_while_files_are_replaced_leaves_no_rows_with_facts_of_others(tmp_path, monkeypatch):
    """Whenever it ends, facts stand beside the rows that they are about, or there are none."""
    from pathlib import Path

    target, older, newer = tmp_path / "r.csv", made(list("abababab"), [KAnonymity(4)]), made(["c"] * 8, [KAnonymity(2)])
    side = tmp_path / "r.csv.anonymized.json"

    class Ended(BaseException):
        pass

    for last in range(12):
        monkeypatch.undo()
        older.to_csv(target)
        steps = {"left": last}

        def counted(original, steps=steps):
            def step(*arguments, **options):
                if steps["left"] <= 0:
                    raise Ended
                steps["left"] -= 1
                return original(*arguments, **options)

            return step

        for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "link"), (os, "replace")):
            monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
        with contextlib.suppress(Ended):
            newer.to_csv(target)
        monkeypatch.undo()
        label = json.loads(side.read_text(encoding="utf-8"))["label"] if side.exists() else None
        rows = target.read_text(encoding="utf-8")
        assert label is None or label.startswith("k=2") == ('"c"' in rows)
    assert label is not None


@pytest.mark.parametrize("column", [pa.array([[1]] * 8), pa.array([{"x": 1}] * 8), pa.array([b"\xff"] * 8)])
def test_rows_that_csv_cannot_hold_leave_an_older_file_as_it_was(tmp_path, column):
    target = tmp_path / "r.csv"
    target.write_text("an older release\n", encoding="utf-8")
    rows = pa.table({"age": AGES, "note": column})
    with pytest.raises(BadInput, match="which cannot be released"):
        mondrian(rows, require=KAnonymity(2), quasi=["age"], plain=["note"]).to_csv(target)
    assert files(tmp_path) == {"r.csv": 17}


def test_facts_that_cannot_be_put_in_place_bring_the_older_rows_back(tmp_path, monkeypatch):
    from pathlib import Path

    target, release = tmp_path / "r.csv", made(list("abababab"), [KAnonymity(4)])
    target.write_text("an older release\n", encoding="utf-8")
    rename = Path.replace

    def replace(self, to):
        if str(to).endswith(".json"):
            raise OSError(28, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(BadInput, match="No space left"):
        release.to_csv(target)
    assert files(tmp_path) == {"r.csv": 17}
    target.unlink()
    with pytest.raises(BadInput, match="No space left"):
        release.to_csv(target)
    assert files(tmp_path) == {}


def test_a_release_is_written_without_a_change_of_the_mask_of_the_process(tmp_path, monkeypatch):
    """Files that other threads make meanwhile, such as keys, would be open to everybody."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda mask: pytest.fail("the mask was changed"))
            made(list("abababab"), [KAnonymity(4)]).to_csv(tmp_path / "r.csv")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


def test_a_folder_of_that_name_is_refused(tmp_path):
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(BadInput, match="is a folder"):
        made(list("abababab"), [KAnonymity(4)]).to_csv(tmp_path / "r.csv")
    assert files(tmp_path).keys() == {"r.csv"}


def test_text_with_an_order_is_verified_in_the_file_and_its_form_follows_the_method_called(tmp_path):
    release = made(list("abcdabcd"), [KAnonymity(4), TCloseness(0.5, "disease", "ordered")])
    release.to_csv(tmp_path / "r.data")
    assert (tmp_path / "r.data").read_text(encoding="utf-8").startswith('"age","disease"')
    release.to_parquet(tmp_path / "p.data")
    assert (tmp_path / "p.data").read_bytes()[:4] == b"PAR1"
    facts = json.loads((tmp_path / "r.data.anonymized.json").read_text(encoding="utf-8"))
    assert facts["label"].startswith("k=4, t=0.5 (disease, ordered)")
    assert (tmp_path / "r.data").stat().st_mode & 0o777 == (tmp_path / "p.data").stat().st_mode & 0o777


@pytest.mark.parametrize("weights", [{"age": -1}, {"age": float("nan")}, {"age": 0}, {"zip": 1}, {"age": float("inf")}])
def test_weights_that_mean_nothing_are_refused(weights):
    with pytest.raises(BadInput, match="weight"):
        made(list("abababab"), [KAnonymity(4)], weights=weights)
