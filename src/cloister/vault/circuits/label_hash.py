"""A tweakable hash of 128-bit labels from AES with a fixed key, for many labels at once.

TMMO of Guo, Katz, Wang and Yu (Efficient and secure multiparty computation from fixed-key block ciphers, IEEE S&P 2020,
section 7.4):

    H(x, i) = pi(pi(x) xor i) xor pi(x)

It is tweakable circular correlation robust if pi is a random permutation, which is what half-gates and the extension of
oblivious transfers need. The key of pi is public. It is drawn anew for each run, so that work done before a run, or in
another run, does not help against this one (Guo et al., CRYPTO 2020, on many instances under one key): an attacker who
computes AES p times against a run of C gates succeeds with probability of the order of p C / 2^128.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput

__all__ = ["BLOCK_BYTES", "Blocks", "LabelHash"]

Blocks = NDArray[np.uint64]  # shape (n, 2): n blocks of 128 bits
BLOCK_BYTES = 16


class LabelHash:
    """TMMO under one public key."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        if len(key) != BLOCK_BYTES:
            raise BadInput(f"the key of the hash has {BLOCK_BYTES} bytes, got {len(key)}.")
        # S305: no text is encrypted here. ECB is the block cipher itself, many times in one call.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305

    def permute(self, blocks: Blocks) -> Blocks:
        """Return pi of each block, in a new array."""
        size = blocks.size * 8
        # update_into asks for room of one more block than it writes.
        room = np.empty(size + BLOCK_BYTES, dtype=np.uint8)
        if size:
            self._cipher.update_into(np.ascontiguousarray(blocks).reshape(-1).view(np.uint8).data, room.data)
        return room[:size].view(np.uint64).reshape(blocks.shape)

    def hash(self, blocks: Blocks, tweaks: NDArray[np.uint64]) -> Blocks:
        """Return H(x, i) of each block.

        Args:
            blocks: shape (n, 2), or (k, n, 2) for k sets that share their tweaks.
            tweaks: shape (n,). Under one key and one secret offset no tweak may be used twice for other blocks.
        """
        outer = self.permute(blocks)
        inner = outer.copy()
        inner[..., 0] ^= tweaks
        inner = self.permute(inner)
        inner ^= outer
        return inner
