"""Over the whole declared range: sums of packed vectors are exact at every extreme, and never overflow."""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.vault.paillier import EncryptedVector, FixedPoint, Layout, PrivateKey, linear_combination

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "paillier.json").read_text(encoding="utf-8"))
KEY = PrivateKey.from_primes(*(int(VECTORS[name], 16) for name in ("p", "q", "h")))


@st.composite
def declared_sums(draw):
    """A layout, vectors at and between its extremes, and weights that use up what was declared."""
    low = draw(st.integers(-(1 << 70), 1 << 70))
    high = draw(st.integers(low + 1, low + (1 << draw(st.integers(1, 80)))))
    length = draw(st.integers(1, 60))
    weights = draw(st.lists(st.integers(-300, 300), min_size=1, max_size=4))
    noise = draw(st.sampled_from([0, 1, 1 << 40]))
    layout = Layout(
        FixedPoint(low, high),
        length,
        summands=max(1, sum(map(abs, weights))),
        noise_bound=noise,
        mask_bits=draw(st.sampled_from([0, 40])),
    )
    value = st.one_of(st.sampled_from([low, high]), st.integers(low, high))
    vectors = [draw(st.lists(value, min_size=length, max_size=length)) for _ in weights]
    return layout, vectors, weights, noise


@given(declared_sums())
@settings(max_examples=60, deadline=None)
def test_any_declared_combination_is_exact(case):
    layout, vectors, weights, noise = case
    encrypted = [EncryptedVector.encrypt(vector, KEY.public, layout) for vector in vectors]
    total = linear_combination(weights, encrypted)
    expected = [sum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*vectors, strict=True)]
    if noise:
        # Once and only once: twice would exceed what was declared only if all weights were 1.
        total = total.add_noise([noise] * layout.length, bound=noise)
        expected = [value + noise for value in expected]
    assert KEY.decrypt(total).tolist() == expected
    if layout.mask_bits:
        masked, mask = total.mask()
        assert mask.remove(KEY.decrypt(masked)).tolist() == expected
    raw = total.to_bytes()
    assert EncryptedVector.from_bytes(raw, KEY.public, layout, summands=None).ciphertexts == total.ciphertexts


@given(st.integers(0, KEY.public.n - 1), st.sampled_from(["fixed-base", "textbook"]))
@settings(max_examples=40, deadline=None)
def test_every_plaintext_comes_back(plaintext, randomness):
    assert KEY.decrypt_number(KEY.public.encrypt_number(plaintext, randomness)) == plaintext


@given(
    st.integers(1, 64),
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_fixed_point_is_off_by_half_a_unit_at_most(fraction_bits, values):
    encoding = FixedPoint(-(10**6), 10**6, fraction_bits)
    decoded = encoding.decode(encoding.encode(values), 1)
    slack = 2.0 ** (-fraction_bits - 1)
    assert all(
        abs(float(found) - value) <= slack + abs(value) * 2.0**-53 for found, value in zip(decoded, values, strict=True)
    )
