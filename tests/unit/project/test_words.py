"""One word per thing: no two public classes of a room share a name, and files are called by what they hold."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "src" / "cloister"
# Words that say nothing about what a file holds.
EMPTY = {"found", "given", "shown", "handed", "kept", "asked", "told", "utils", "helpers", "common", "misc", "manager"}
METAPHORS = {"purse", "desk", "shelf", "town", "wallet_book", "books", "tongue", "door", "page_open", "keeping"}


def classes() -> dict[tuple[str, str], list[str]]:
    """Where each public class is, by room and name."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[place.parts[0], node.name].append(str(place))
    return found


def test_no_two_public_classes_of_a_room_share_a_name():
    assert not {key: files for key, files in classes().items() if len(files) > 1}


def test_files_are_called_by_what_they_hold():
    names = {path.stem for path in PACKAGE.rglob("*.py")}
    assert not names & (EMPTY | METAPHORS)


def test_every_word_of_the_glossary_is_there_once_and_in_order():
    text = (PACKAGE.parents[1] / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(words) == len(set(words)) > 40
    assert [word.lower() for word in words] == sorted(word.lower() for word in words)
