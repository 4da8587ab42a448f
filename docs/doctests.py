"""In the reference, show the `>>>` examples of docstrings as code. Read by mkdocstrings (see mkdocs.yml)."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fence each example: left alone, Markdown takes its prompts for nested quotations."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```python\n{found[0]}\n```", obj.docstring.value)
