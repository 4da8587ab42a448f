"""A hook of mkdocs: the screenshots that the browser tests kept in build/screens become pictures of the site.

They are made, so they are not committed. Before the tests have run, a page says so where a picture would be.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

SCREENS = Path(__file__).parent.parent / "build" / "screens"
_PICTURE = re.compile(r"!\[([^\]]*)\]\((?:\.\./)*screens/([a-z0-9-]+\.png)\)")
_LATER = "*{}* (`make test` takes this picture in a real browser; `make docs` then puts it here.)"


def on_files(files: Files, config: Any) -> Files:
    """Add every screenshot there is, as screens/NAME.png."""
    for path in sorted(SCREENS.glob("*.png")):
        files.append(File.generated(config, f"screens/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace pictures that were not taken by a sentence."""

    def shown(found: re.Match[str]) -> str:
        return found[0] if (SCREENS / found[2]).exists() else _LATER.format(found[1])

    return _PICTURE.sub(shown, markdown)
