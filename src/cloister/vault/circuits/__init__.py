"""Garbled circuits and oblivious transfer: two parties compute a function of both inputs and see its output only.

Read in the order of the work:

    builder         write a circuit: inputs, outputs, gates; `number` has the operators, `arithmetic` the gates of each
    circuit         the finished circuit in steps, the encoding of its inputs, and its plain evaluation
    channel         named, numbered, encrypted messages between two parties with pinned keys
    base_transfer   128 oblivious transfers from Diffie-Hellman exchanges
    label_hash      a hash of labels from AES with a fixed key, many at a time
    transfer        many oblivious transfers: chosen, random, correlated
    garbling        half-gates: labels, tables, evaluation, checks of outputs
    two_party       the protocol: a garbler and an evaluator

Each module of a protocol states its parties, what each learns, who must not collude, and what an active attacker
could do.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.vault.circuits.builder import CircuitBuilder
    from cloister.vault.circuits.channel import Channel
    from cloister.vault.circuits.circuit import BOTH, EVALUATOR, GARBLER, Circuit
    from cloister.vault.circuits.number import Number, Truth
    from cloister.vault.circuits.transfer import TransferReceiver, TransferSender
    from cloister.vault.circuits.two_party import Evaluator, Garbler

__all__ = [
    "BOTH",
    "Channel",
    "Circuit",
    "CircuitBuilder",
    "EVALUATOR",
    "Evaluator",
    "GARBLER",
    "Garbler",
    "Number",
    "TransferReceiver",
    "TransferSender",
    "Truth",
]
__getattr__, __dir__ = door(__name__)
