"""How long do encrypted sums and computations on shared secrets take, beside the obvious way and beside peers?"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from report import write

from cloister.vault import sharing
from cloister.vault.paillier import EncryptedVector, FixedPoint, Layout, PrivateKey, deal_key

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from place import HERE, python_of

LENGTH, SUMMANDS, BITS, VECTORS = 10_000, 1_000, 3072, 100
SIZE, COMPARISONS, ROUNDS = 50, 1_000, 20
# Measured once on another machine, since its licence (GPL-3) keeps it out of this repository.
PYTHON_PAILLIER_S = 0.351
RNG = np.random.default_rng(5)


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of this thread, and the result."""
    start = time.thread_time()
    result = work()
    return time.thread_time() - start, result


def sums() -> tuple[list[list[str]], list[dict[str, object]], str]:
    made, key = seconds(lambda: PrivateKey.create(BITS))
    values = RNG.integers(0, 1 << 32, LENGTH)
    layout = Layout(FixedPoint(0, (1 << 32) - 1), LENGTH, SUMMANDS)
    count = layout.ciphertexts(BITS)
    table, _ = seconds(lambda: key.public.random_part())
    encrypted_s, vector = seconds(lambda: EncryptedVector.encrypt(values, key.public, layout))
    added_s, total = seconds(lambda: EncryptedVector.sum([vector] * VECTORS))
    decrypted_s, decrypted = seconds(lambda: key.decrypt(total))
    assert (decrypted == VECTORS * values).all()
    fresh_s, _ = seconds(vector.rerandomise)
    textbook_s, _ = seconds(lambda: EncryptedVector.encrypt(values, key.public, layout, randomness="textbook"))
    single = Layout(FixedPoint(0, (1 << 32) - 1), 20, SUMMANDS, packed=False)
    single_s, alone = seconds(lambda: EncryptedVector.encrypt(values[:20], key.public, single, randomness="textbook"))
    single_back_s, _ = seconds(lambda: key.decrypt(alone))
    peer_s, peer_back_s = lightphe(key, values)
    _, (public, first, second) = seconds(lambda: deal_key(BITS))
    shared = EncryptedVector.encrypt(values[:71], public, Layout(FixedPoint(0, (1 << 32) - 1), 71, SUMMANDS))
    partial_s, _ = seconds(lambda: first.decrypt_partially(shared))
    partial_s = max(partial_s, seconds(lambda: second.decrypt_partially(shared))[0])
    scale = LENGTH / 20
    each, back = f"{single_s * scale:,.0f}", f"{single_back_s * scale:,.0f}"
    peer, peer_back, other = (f"{LENGTH * taken:,.0f}" for taken in (peer_s, peer_back_s, PYTHON_PAILLIER_S))
    rows = [
        ["this library, packed, fixed base", f"{count}", f"{encrypted_s:.2f}", f"{added_s:.2f}", f"{decrypted_s:.2f}"],
        ["this library, packed, textbook exponent", f"{count}", f"{textbook_s:.2f}", "", ""],
        ["re-randomised, so that not even the key holder can link it", f"{count}", f"{fresh_s:.2f}", "", ""],
        ["one value a ciphertext, textbook exponent (20 measured)", f"{LENGTH}", each, "", back],
        ["lightphe (3 measured)", f"{LENGTH}", peer, "", peer_back],
        ["python-paillier (measured elsewhere)", f"{LENGTH}", other, "", ""],
        ["half of a threshold decryption", "1", "", "", f"{partial_s:.2f}"],
    ]
    bars = [
        bar("ciphertexts of 10,000 values: at most 250", count, 250, "d"),
        bar("encrypted in 2 s", encrypted_s, 2),
        bar("decrypted in 5 s", decrypted_s, 5),
        bar("100 vectors added in 2 s", added_s, 2),
    ]
    return rows, bars, f"generation {made:.2f} s, the table of powers {table:.2f} s"


def lightphe(key: PrivateKey, values: np.ndarray) -> tuple[float, float]:
    """Seconds a value of lightphe's Paillier under the same key: to encrypt and to decrypt."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightphe.cryptosystems.Paillier import Paillier
    p, q = map(int, key.secret_primes())
    peer = Paillier(keys={"public_key": {"g": 1 + p * q, "n": p * q}, "private_key": {"phi": (p - 1) * (q - 1)}})
    there, sent = seconds(lambda: [peer.encrypt(int(value)) for value in values[:3]])
    back, found = seconds(lambda: [peer.decrypt(number) for number in sent])
    assert found == values[:3].tolist()
    return there / 3, back / 3


def shares(folder: Path) -> tuple[list[list[str]], list[dict[str, object]], str]:
    given = {
        "matrix": RNG.uniform(-5, 5, (SIZE, SIZE)),
        "vector": RNG.uniform(-5, 5, SIZE),
        "left": RNG.uniform(-5, 5, COMPARISONS),
        "right": RNG.uniform(1, 5, COMPARISONS),
    }
    truth = {
        "product": given["matrix"] @ given["vector"],
        "comparisons": given["left"] < given["right"],
        "quotients": given["left"][:20] / given["right"][:20],
    }

    def program(party: sharing.Party) -> dict[str, tuple[float, float, np.ndarray]]:
        own = {
            name: party.share(0, values.shape, -5, 5, values if party.index == 0 else None)
            for name, values in given.items()
        }
        works = {
            "product": lambda: own["matrix"] @ own["vector"],
            "comparisons": lambda: sharing.less_than(own["left"], own["right"]),
            "quotients": lambda: sharing.divide(own["left"][:20], own["right"][:20], 0.5),
        }
        found = {}
        for name, work in works.items():
            best, wall = float("inf"), float("inf")
            for _ in range(ROUNDS):
                start = time.perf_counter()
                took, result = seconds(work)
                best, wall = min(best, took), min(wall, time.perf_counter() - start)
            found[name] = (best, wall, result.open())
        return found

    measured = {parties: sharing.run_parties(program, parties) for parties in (2, 3)}
    peer, said = mpyc(given, folder)
    rows = []
    for name, exact in truth.items():
        worst = {parties: max(result[name][0] for result in results) for parties, results in measured.items()}
        wall = max(result[name][1] for result in measured[3])
        error = max(np.abs(result[name][2] - exact).max() for results in measured.values() for result in results)
        theirs = ["", ""]
        if peer is not None:
            numbers, took = peer[name]
            theirs = [f"{took * 1e3:.1f}", f"{np.abs(np.array(numbers) - exact).max():.1e}"]
        rows.append(
            [name, *(f"{1e3 * worst[parties]:.2f}" for parties in (2, 3)), f"{1e3 * wall:.1f}", f"{error:.1e}", *theirs]
        )
    worst = {name: max(result[name][0] for results in measured.values() for result in results) for name in truth}
    bars = [
        bar("a shared 50 × 50 matrix-vector product: at most 2 ms of computing a party", worst["product"] * 1e3, 2),
        bar("1,000 comparisons: at most 0.5 s", worst["comparisons"], 0.5, ".4f"),
    ]
    return rows, bars, said


def mpyc(given: dict[str, np.ndarray], folder: Path) -> tuple[dict[str, Any] | None, str]:
    """What MPyC's three parties find, and how long that takes them."""
    table, out = folder / "table.npz", folder / "found.json"
    np.savez(table, **given)
    try:
        command = [python_of("mpyc"), HERE / "ask_mpyc.py", "-M3", table, out]
        subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(out.read_text(encoding="utf-8")), "MPyC 0.11 ran three processes here."
    except (OSError, subprocess.SubprocessError):
        return None, "MPyC could not be installed here, so its columns are empty."


def bar(name: str, measured: float, most: float, form: str = ".2f") -> dict[str, object]:
    return {"bar": name, "measured": f"{measured:{form}}", "met": bool(measured <= most)}


def run() -> dict[str, object]:
    rows, bars, once = sums()
    with tempfile.TemporaryDirectory() as name:
        more, met, said = shares(Path(name))
    return {
        "title": "Computing under encryption",
        "question": "How long do encrypted sums and shared computations take?",
        "tables": [
            {
                "caption": "10,000 values of 32 bits, up to 1,000 summands, 3072 bits: processor seconds of one core.",
                "columns": ["", "ciphertexts", "encrypt", "add 100 vectors", "decrypt"],
                "rows": rows,
            },
            {
                "caption": "Shared numbers with 20 bits after the point: milliseconds of computing, slowest party.",
                "columns": [
                    "",
                    "two parties",
                    "three parties",
                    "three, with waiting",
                    "error",
                    "MPyC, three, with waiting",
                    "its error",
                ],
                "rows": more,
            },
        ],
        "bars": [*bars, *met],
        "notes": [
            "One value a ciphertext and lightphe are measured on a few values and scaled. python-paillier's figure is "
            f"{PYTHON_PAILLIER_S * 1e3:.0f} ms a value, measured before on a similar machine.",
            f"Once for each key: {once}.",
            f"product: 50 × 50 matrix by vector; comparisons: {COMPARISONS:,}; quotients: 20. Parties are threads of "
            "one process; correlated randomness comes from a dealer, whose time counts as waiting, not as a party's "
            f"computing. {said} It has no dealer, and trusts that two of three parties do not collude.",
        ],
    }


if __name__ == "__main__":
    write("vault", run())
