"""All errors of Cloister, as one tree.

    CloisterError
    ├── BadInput              the call itself is wrong; nothing was charged
    │   ├── BadNumber         CLO-101
    │   ├── BadLoss           CLO-102
    │   ├── BadBounds         CLO-103
    │   ├── BadScale          CLO-104
    │   ├── UnknownRelation   CLO-105
    │   ├── RelationMismatch  CLO-106
    │   ├── MeasureMismatch   CLO-107
    │   ├── BadProbability    CLO-108
    │   ├── BadName           CLO-109
    │   ├── BadCandidates     CLO-110
    │   ├── BadSchema         CLO-111
    │   ├── BadSource         CLO-112
    │   └── OutOfRange        CLO-113
    ├── Refused               the call is well formed, the guarantee forbids it
    │   ├── TextbookOnly      CLO-201
    │   ├── NotPrivate        CLO-202
    │   ├── WrongMeasure      CLO-203
    │   ├── OverBudget        CLO-204
    │   ├── RowsWereRead      CLO-205
    │   ├── RolledBack        CLO-206
    │   ├── AccountMismatch   CLO-207
    │   ├── ChargeClosed      CLO-208
    │   ├── QueryRefused      CLO-209
    │   └── OutputRefused     CLO-210
    ├── Broken                a signed record is invalid
    │   ├── LedgerBroken      CLO-301
    │   ├── ReceiptRejected   CLO-302
    │   ├── HeadRejected      CLO-303
    │   ├── SealBroken        CLO-304
    │   ├── ChannelBroken     CLO-305
    │   └── CiphertextRejected CLO-306
    ├── HubRefused            a hub refuses a user's request
    │   ├── SignInFailed      CLO-501
    │   ├── Denied            CLO-502
    │   ├── NotHere           CLO-503
    │   ├── TooMany           CLO-504
    │   ├── BadPolicy         CLO-505
    │   ├── UploadRefused     CLO-506
    │   ├── NotNow            CLO-507
    │   └── BadForm           CLO-508
    └── Unavailable           a required component is missing or failed
        ├── MissingExtra      CLO-401
        ├── StoreFailed       CLO-402
        ├── OwnerOnly         the cause is shown to the owner only
        │   ├── EngineFailed  CLO-403
        │   └── LookFailed    CLO-404
        ├── HubBusy           CLO-405
        └── PeerLost          CLO-406

A message states the request, the rule, the value received and the remedy. It depends only on the request and on
public facts: no message may contain a value read from a private table (tests/property/test_errors_keep_secrets.py).
"""

from collections.abc import Iterator

__all__ = [
    "AccountMismatch",
    "BadBounds",
    "BadCandidates",
    "BadForm",
    "BadInput",
    "BadLoss",
    "BadName",
    "BadNumber",
    "BadPolicy",
    "BadProbability",
    "BadScale",
    "BadSchema",
    "BadSource",
    "Broken",
    "ChannelBroken",
    "ChargeClosed",
    "CiphertextRejected",
    "CloisterError",
    "Denied",
    "EngineFailed",
    "HeadRejected",
    "HubBusy",
    "HubRefused",
    "LedgerBroken",
    "LookFailed",
    "MeasureMismatch",
    "MissingExtra",
    "NotHere",
    "NotNow",
    "NotPrivate",
    "OutOfRange",
    "OutputRefused",
    "OverBudget",
    "PeerLost",
    "QueryRefused",
    "ReceiptRejected",
    "Refused",
    "RelationMismatch",
    "RolledBack",
    "RowsWereRead",
    "SealBroken",
    "SignInFailed",
    "StoreFailed",
    "TextbookOnly",
    "TooMany",
    "Unavailable",
    "UnknownRelation",
    "UploadRefused",
    "WrongMeasure",
    "catalogue",
]


class CloisterError(Exception):
    """Base class of all errors, each with a stable code."""

    code = ""
    way_out = ""

    def __init__(self, message: str) -> None:
        super().__init__(f"{self.code}: {message}" if self.code else message)


class BadInput(CloisterError, ValueError):
    """The call itself is wrong. Nothing was charged and no row was read."""


class BadNumber(BadInput):
    """A number was expected: finite, and exact (int, str, Decimal, Fraction, or a float taken by its shortest form)."""

    code = "CLO-101"
    way_out = 'Give a finite number such as 1, "0.1" or Fraction(1, 10).'


class BadLoss(BadInput):
    """A loss must be positive, and a delta must be strictly between 0 and 1."""

    code = "CLO-102"
    way_out = "Write epsilon(1), epsilon(1, delta=1e-6) or rho('0.1') with positive amounts."


class BadBounds(BadInput):
    """Bounds must be two finite public numbers, the lower one first."""

    code = "CLO-103"
    way_out = "Give (lower, upper) with lower < upper, known without looking at the data."


class BadScale(BadInput):
    """A noise scale or a sensitivity must be positive and within the supported range."""

    code = "CLO-104"
    way_out = "Check sensitivity and loss: their ratio is the scale."


class UnknownRelation(BadInput):
    """The neighbour relation must be one of two words."""

    code = "CLO-105"
    way_out = "Use 'add/remove' or 'replace-one'."


class RelationMismatch(BadInput):
    """Two losses state different neighbour relations and cannot be added or compared."""

    code = "CLO-106"
    way_out = "Convert first: loss.as_replace_one() turns an add/remove loss into a replace-one loss at group size two."


class MeasureMismatch(BadInput):
    """Two losses are measured differently (epsilon and rho) and cannot be added or compared."""

    code = "CLO-107"
    way_out = "Convert first: loss.as_rho() is exact; loss.as_epsilon(delta=...) is rounded up."


class BadProbability(BadInput):
    """A probability or a confidence must be strictly between 0 and 1."""

    code = "CLO-108"
    way_out = "Give a number such as 0.95."


class BadName(BadInput):
    """A name must be a short printable word."""

    code = "CLO-109"
    way_out = "Use letters, digits and . _ - : / up to 200 characters."


class BadCandidates(BadInput):
    """A choice needs a non-empty public list of candidates, one score each."""

    code = "CLO-110"
    way_out = "List the candidates from public knowledge; never from the values that occur in the data."


class BadSchema(BadInput):
    """The schema does not describe the tables; the message lists every problem."""

    code = "CLO-111"
    way_out = "Correct the schema and run `cloister schema check FILE`."


class BadSource(BadInput):
    """The source has no tables that Cloister can read."""

    code = "CLO-112"
    way_out = "Open a CSV, Parquet or DuckDB file, an Arrow, pandas or polars table, a PostgreSQL address or Spark."


class OutOfRange(BadInput):
    """A value, or a sum, is outside the range that was declared for it. Nothing was encrypted, shared or added."""

    code = "CLO-113"
    way_out = "Declare wider bounds or more summands, and encrypt or share again."


class Refused(CloisterError):
    """The call is well formed, but the privacy guarantee forbids it. Nothing was charged."""


class TextbookOnly(Refused):
    """The mechanism uses continuous noise. It is for teaching and comparison; a ledger does not accept it."""

    code = "CLO-201"
    way_out = "Use the exact mechanism named in the message, or call it without a ledger in a lesson."


class NotPrivate(Refused):
    """The requested method is not differentially private, whatever its name suggests."""

    code = "CLO-202"
    way_out = "Use the replacement named in the message."


class WrongMeasure(Refused):
    """The account cannot express this loss: a pure account adds pure epsilons only."""

    code = "CLO-203"
    way_out = "Use a mechanism with a pure guarantee, or an account opened with rho or (epsilon, delta)."


class OverBudget(Refused):
    """The requested loss exceeds the remaining budget of the account.

    Attributes:
        decision: the number of the decision recorded by a hub; 0 elsewhere.
        limit: the limit, by its word in a hub's policy, such as `per_user`; `lifetime` is that of the account.
    """

    code = "CLO-204"
    way_out = "Lower the spend or ask the owner for a larger budget."
    decision = 0
    limit = "lifetime"


class RowsWereRead(Refused):
    """A charge can be voided only before a row is read; after that it is final."""

    code = "CLO-205"
    way_out = "Nothing to do: the charge is the price of the look."


class RolledBack(Refused):
    """The ledger is older than the newest head known outside it, or that head is missing: it may be a backup."""

    code = "CLO-206"
    way_out = "Restore the newest ledger, show its newest head, or write the remainder off."


class AccountMismatch(Refused):
    """An account of that name does not exist, or exists with another budget."""

    code = "CLO-207"
    way_out = "Open the account with the budget it has, or choose another name."


class ChargeClosed(Refused):
    """A charge is committed or voided once."""

    code = "CLO-208"
    way_out = "Reserve again for another look."


class QueryRefused(Refused):
    """The query is outside the language that can be answered privately."""

    code = "CLO-209"
    way_out = "Write it the way the message suggests; docs/guides/ask-a-question.md lists what works."


class OutputRefused(Refused):
    """A model carries training rows, or its output policy does not show what was asked for."""

    code = "CLO-210"
    way_out = "Serve a private model, or ask for what the policy shows; docs/guides/serve-a-model.md lists both."


class Broken(CloisterError):
    """A signed record is invalid."""


class LedgerBroken(Broken):
    """A hash, signature or total in the ledger is wrong; the message names the first bad entry."""

    code = "CLO-301"
    way_out = "Stop spending, keep the file as evidence and restore the newest good copy."


class ReceiptRejected(Broken):
    """The receipt was changed, or was not signed by the owner's key."""

    code = "CLO-302"
    way_out = "Ask the owner for the receipt again and check the key you pinned."


class HeadRejected(Broken):
    """The head is not a signed head of this ledger."""

    code = "CLO-303"
    way_out = "Show the head that was printed or kept outside the file."


class SealBroken(Broken):
    """A sealed table, upload part or secret was changed, replaced or truncated after sealing."""

    code = "CLO-304"
    way_out = "Keep the file as evidence and restore it from a backup, or make a new version of the dataset."


class ChannelBroken(Broken):
    """A message between two parties of a protocol is not the one that was due; the run ended and nothing was output."""

    code = "CLO-305"
    way_out = "Check both parties' keys, programs and circuits, and run the protocol again from its beginning."


class CiphertextRejected(Broken):
    """A ciphertext, a key or a share is not of the key, group, layout, version or length that was due."""

    code = "CLO-306"
    way_out = "Compare the keys' fingerprints and the declared layout, then ask the sender for it again."


class HubRefused(CloisterError):
    """A hub refuses a user's request. The message depends on the request and on what that user may know."""


class SignInFailed(HubRefused):
    """No user is signed in, or the credentials are wrong; the message does not say which part."""

    code = "CLO-501"
    way_out = "Sign in again, or make a new token under Account."


class Denied(HubRefused):
    """A role or a policy does not allow this; the decision's page names the rule.

    Attributes:
        decision: the number of the decision recorded by the hub; 0 if no policy made it.
        dataset: the name of the dataset whose policy it is.
        policy: the version of the policy; 0 if no policy decided.
    """

    code = "CLO-502"
    way_out = "Read the page behind 'why?'. Lower the spend if a limit says no; else ask the owner for access."
    decision = 0
    dataset = ""
    policy = 0


class NotHere(HubRefused):
    """The object does not exist, or this user may not see it; the message does not say which."""

    code = "CLO-503"
    way_out = "Check the name, or ask the person who gave you the link."


class TooMany(HubRefused):
    """Too many requests, or too many wrong passwords, in too short a time."""

    code = "CLO-504"
    way_out = "Wait for the time named in the message."

    def __init__(self, message: str, wait_s: float = 60) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class BadPolicy(HubRefused):
    """The policy cannot be read; the message lists every problem."""

    code = "CLO-505"
    way_out = "Correct the policy and check it again; docs/guides/write-a-policy.md has examples."


class UploadRefused(HubRefused):
    """An upload is too large, of an unknown form, or out of order."""

    code = "CLO-506"
    way_out = "Send a CSV or Parquet file in order, within the limit that the message names."


class NotNow(HubRefused):
    """The current state of the object does not allow this."""

    code = "CLO-507"
    way_out = "Read its state on its page; start anew if it is finished."


class BadForm(HubRefused):
    """A field of a form or of a JSON body is missing or cannot be read."""

    code = "CLO-508"
    way_out = "Correct the field that the message names."


class Unavailable(CloisterError):
    """Something Cloister needs is missing or failed."""


class MissingExtra(Unavailable, ImportError):
    """An optional part is not installed."""

    code = "CLO-401"
    way_out = "Run the pip command in the message."


class StoreFailed(Unavailable):
    """The ledger's store could not write. Reserved losses stay reserved; nothing was released."""

    code = "CLO-402"
    way_out = "Free disk space or repair the database, then ask again."


class OwnerOnly(Unavailable):
    """A failure whose cause may contain rows: it is kept in `owner_detail`, for the owner only."""

    def __init__(self, message: str, owner_detail: str = "") -> None:
        super().__init__(message)
        self.owner_detail = owner_detail


class EngineFailed(OwnerOnly):
    """The engine that holds the rows could not run a statement."""

    code = "CLO-403"
    way_out = "Ask the owner to read the detail kept on the error (`owner_detail`)."


class LookFailed(OwnerOnly):
    """A statistic could not be computed after the charge. The charge stands, since rows may have been read."""

    code = "CLO-404"
    way_out = "Ask the owner to read the detail kept on the error (`owner_detail`)."


class HubBusy(Unavailable):
    """The hub is busy with other requests of the same person or address. Nothing was done."""

    code = "CLO-405"
    way_out = "Wait for your other requests to be answered, then try again."


class PeerLost(Unavailable):
    """The other party of a protocol went away or did not answer in time; nothing was output."""

    code = "CLO-406"
    way_out = "Run the protocol again from its beginning when the other party is there."


def catalogue() -> Iterator[type[CloisterError]]:
    """Yield every error that has a code, in the order of the codes."""
    kinds, rest = [], [CloisterError]
    while rest:
        kind = rest.pop()
        rest.extend(kind.__subclasses__())
        if kind.code:
            kinds.append(kind)
    return iter(sorted(kinds, key=lambda kind: kind.code))
