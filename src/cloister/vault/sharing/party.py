"""A party of a computation on shares: its number, its links, its supply of correlated randomness.

All parties run one public program, each with its own `Party`. Nothing is shared between them but messages.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cloister.privacy.errors import BadInput, BadNumber, CloisterError, OutOfRange
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.privacy.number import rational
from cloister.privacy.signing import canonical
from cloister.vault.paillier.encoding import FixedPoint, exact_array
from cloister.vault.secret import Secret
from cloister.vault.sharing import ring
from cloister.vault.sharing.link import Link, local_links
from cloister.vault.sharing.ring import Bits, Words
from cloister.vault.sharing.supply import MOST_WORDS, DealtSupply, Supply, serve_dealer

if TYPE_CHECKING:
    from cloister.vault.sharing.fixed import Shared

__all__ = ["Party", "run_parties"]


class Party(Secret):
    """One of two or three parties.

    Attributes:
        index: this party's number, from 0.
        count: how many parties there are.
        fraction_bits: bits after the binary point of shared numbers.
        rounds: exchanges so far.
    """

    __slots__ = ("_links", "_source", "count", "fraction_bits", "index", "rounds", "supply")

    def __init__(
        self, index: int, links: dict[int, Link], supply: Supply, fraction_bits: int = 20, source: Source = SYSTEM
    ) -> None:
        if len(links) not in (1, 2) or set(links) | {index} != set(range(len(links) + 1)):
            raise BadInput("two or three parties compute together, numbered from 0, each with a link to every other.")
        if isinstance(fraction_bits, bool) or not isinstance(fraction_bits, int) or not 0 <= fraction_bits <= 26:
            raise BadNumber("fraction_bits is a whole number from 0 to 26: products need twice as many, of 62.")
        self.index, self.count, self.fraction_bits, self.rounds = index, len(links) + 1, fraction_bits, 0
        self.supply, self._links, self._source = supply, links, source

    def share(
        self, owner: int, shape: tuple[int, ...], lower: object, upper: object, values: ArrayLike | None = None
    ) -> "Shared":
        """Share an array that one party owns. Every party calls this; only the owner gives values.

        Args:
            owner: the number of the party whose values these are.
            shape: the public shape.
            lower: public lower bound of every value.
            upper: public upper bound of every value; the owner's wider value is refused before anything is sent.
            values: the owner's numbers; None for the other parties.

        Returns:
            The shared array, a `Shared`.
        """
        from cloister.vault.sharing.fixed import Shared

        shape = self.checked_input(owner, shape, values)
        encoding = FixedPoint(lower, upper, self.fraction_bits)
        bound = max(abs(encoding.low), abs(encoding.high))
        Shared.check_bound(bound)
        # The name says what was declared, so that parties who declared something else stop at the first input.
        declared = hashlib.sha256(canonical([encoding.describe(), list(shape)])).hexdigest()
        step = f"input, {self.fraction_bits} fraction bits {declared[:8]}"
        if owner != self.index:
            return Shared(self, self._receive(owner, step, shape), bound)
        array = exact_array(values)
        if array.shape != shape:
            raise BadNumber(f"this input was declared with the shape {shape}, and its values have {array.shape}.")
        encoded = np.array(encoding.encode(array.reshape(-1)), dtype=np.int64).view(np.uint64).reshape(shape)
        parts = ring.share(encoded, self.count, self._source)
        # The one share that depends on the values stays here.
        for peer, part in zip(self.peers(), parts, strict=False):
            self._links[peer].send(step, part.astype("<u8").tobytes())
        return Shared(self, parts[-1], bound)

    def checked_input(self, owner: int, shape: Sequence[int], values: object) -> tuple[int, ...]:
        """Return the shape of an input; refuse one that is no shape, and values of whoever is not its owner."""
        whole = isinstance(owner, int) and not isinstance(owner, bool)
        if not whole or not 0 <= owner < self.count or (values is None) == (owner == self.index):
            raise BadInput("the owner of an input, and only the owner, gives its values.")
        sides = tuple(shape) if isinstance(shape, Sequence) else (None,)
        if not all(isinstance(side, int | np.integer) and not isinstance(side, bool) and side >= 0 for side in sides):
            raise BadNumber("the shape of an input is a tuple of whole numbers, such as (3,).")
        found = tuple(int(side) for side in sides if side is not None)
        if math.prod(found) > MOST_WORDS:
            raise OutOfRange(f"an input has up to {MOST_WORDS} numbers. Share it in parts.")
        return found

    def public(self, values: ArrayLike, bound: object | None = None) -> "Shared":
        """Return public numbers as a shared array: party 0 holds them, the others hold zero."""
        from cloister.vault.sharing.fixed import Shared, encoded_public

        encoded, largest = encoded_public(self, values)
        one = 1 << self.fraction_bits
        widest = max(largest if bound is None else round(rational(bound, "bound") * one), one)
        if largest > widest:
            raise OutOfRange("a public number is outside the bound that was given for it. Give a wider one.")
        return Shared(self, encoded if self.index == 0 else np.zeros_like(encoded), widest)

    @ring.wrapping
    def open_words(self, shares: Words) -> Words:
        """Open ring elements to all parties."""
        opened = shares
        for other in self.exchange("open", np.ascontiguousarray(shares).astype("<u8").tobytes()):
            opened = opened + np.frombuffer(other, dtype="<u8").astype(np.uint64).reshape(shares.shape)
        return opened

    def open_bits(self, shares: Bits) -> Bits:
        """Open XOR-shared bytes to all parties."""
        opened = shares
        for other in self.exchange("open bits", np.ascontiguousarray(shares).tobytes()):
            opened = opened ^ np.frombuffer(other, dtype=np.uint8).reshape(shares.shape)
        return opened

    @ring.wrapping
    def multiply_words(self, left: Words, right: Words, matrix: bool = False) -> Words:
        """Return shares of a product or matrix product of ring elements, with one triple and one round."""
        first, second, product = self.supply.triple(left.shape, right.shape, matrix)
        # Both masked operands travel in one message. a and b are uniform, so they hide left and right perfectly.
        joined = np.concatenate([(left - first).reshape(-1), (right - second).reshape(-1)])
        opened = self.open_words(joined)
        masked_left = opened[: left.size].reshape(left.shape)
        masked_right = opened[left.size :].reshape(right.shape)
        times = np.matmul if matrix else np.multiply
        result = product + times(masked_left, second) + times(first, masked_right)
        return np.asarray(result + times(masked_left, masked_right) if self.index == 0 else result, dtype=np.uint64)

    def and_bits(self, left: Bits, right: Bits) -> Bits:
        """Return XOR shares of left & right, for arrays of one shape."""
        first, second, both = (part.reshape(left.shape) for part in self.supply.bit_triple(left.size))
        masked_left, masked_right = self.open_bits(np.stack([left ^ first, right ^ second]))
        result: Bits = both ^ (masked_left & second) ^ (masked_right & first)
        if self.index == 0:
            result = result ^ (masked_left & masked_right)
        return result

    @ring.wrapping
    def to_numbers(self, row: Bits, count: int) -> Words:
        """Return additive shares of XOR-shared bits: the last axis holds eight to a byte, `count` in all."""
        rows = row.reshape(math.prod(row.shape[:-1]), row.shape[-1])
        lanes = 8 * rows.shape[1]
        xored, added = self.supply.coins(rows.shape[0] * lanes)
        opened = ring.unpack_bits(self.open_bits(rows ^ xored.reshape(rows.shape)), count)
        coins = added.reshape(rows.shape[0], lanes)[:, :count]
        # bit = opened xor coin = opened + coin - 2·opened·coin, and opened is public.
        numbers = coins - (coins * opened << np.uint64(1))
        return (numbers + opened if self.index == 0 else numbers).reshape(*row.shape[:-1], count)

    def peers(self) -> list[int]:
        """Return the numbers of the other parties."""
        return sorted(self._links)

    def link(self, peer: int) -> Link:
        """Return the link to another party."""
        return self._links[peer]

    def abort(self) -> None:
        """Close all links, so that the others end too."""
        for link in self._links.values():
            link.abort()

    def _receive(self, peer: int, step: str, shape: tuple[int, ...]) -> Words:
        raw = self._links[peer].receive(step, size=8 * math.prod(shape))
        return np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(shape)

    def exchange(self, step: str, body: bytes) -> list[bytes]:
        """Send the same bytes to all, and return what the others sent, in the order of their numbers."""
        self.rounds += 1
        received = []
        for peer in self.peers():
            link = self._links[peer]
            # The lower number speaks first: two long messages never wait for each other on full sockets.
            if self.index < peer:
                link.send(step, body)
            received.append(link.receive(step, size=len(body)))
            if self.index > peer:
                link.send(step, body)
        return received


def run_parties(
    program: Callable[[Party], Any],
    parties: int = 2,
    fraction_bits: int = 20,
    timeout_s: float = 30,
    sources: Sequence[Source] | None = None,
) -> list[Any]:
    """Run a program for each party in a thread of its own, with a dealer in another, and return what each returned.

    All parties are in this process, so it protects nobody: it is for tests, lessons and trying a program out.

    Args:
        program: called with each party's `Party`.
        parties: 2 or 3.
        fraction_bits: bits after the binary point.
        timeout_s: how long a message may take.
        sources: sources of randomness of the parties and, last, of the dealer.
    """
    if isinstance(parties, bool) or not isinstance(parties, int) or parties not in (2, 3):
        raise BadInput(f"two or three parties compute together, got {parties!r:.20}.")
    links = local_links(parties + 1, timeout_s)
    drawn = list(sources or [SYSTEM] * (parties + 1))
    results: list[Any] = [None] * parties
    failures: list[BaseException] = []

    def dealer() -> None:
        try:
            serve_dealer(links[parties], drawn[parties])
        except CloisterError:
            pass  # a party that failed closed its link, and its own error is the one to show
        finally:
            for link in links[parties].values():
                link.abort()

    def run(index: int) -> None:
        to_dealer = links[index].pop(parties)
        try:
            supply = DealtSupply(to_dealer, last=index == parties - 1)
            results[index] = program(Party(index, links[index], supply, fraction_bits, drawn[index]))
            supply.end()
        except BaseException as error:
            failures.append(error)
            for link in (*links[index].values(), to_dealer):
                link.abort()

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(parties)]
    threads.append(threading.Thread(target=dealer, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
