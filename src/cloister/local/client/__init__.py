"""The device's half: perturb a value, write the report's bytes. It knows nothing of collectors.

    values ──► check ──► perturbed (one file a mechanism) ──► Reports ──► encode ──► bytes

Randomness comes from a `Source` alone, as integers. For n people at once, each step's random bytes are read for all
of them before the next step's; for one person this is the order that a client in another language follows.
"""

from cloister.local.client.perturb import perturb, perturbed
from cloister.local.client.wire import encode

__all__ = ["encode", "perturb", "perturbed"]
