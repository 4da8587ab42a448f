"""One fixed key for tests, and its known answers."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from cloister.vault.paillier import PrivateKey

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "vectors" / "paillier.json").read_text(encoding="utf-8")
)


@cache
def fixed_key() -> PrivateKey:
    return PrivateKey.from_primes(*(int(VECTORS[name], 16) for name in ("p", "q", "h")))


@cache
def other_key() -> PrivateKey:
    return PrivateKey.create(2048)
