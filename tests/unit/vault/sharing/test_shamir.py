"""A split secret: any t shares recover it, fewer say nothing, and a wrong share is named."""

import itertools
import secrets
from dataclasses import replace

import pytest

from cloister.privacy.errors import BadInput, BadNumber, CiphertextRejected
from cloister.vault.sharing import Commitments, HeldShare, recover, split
from cloister.vault.sharing.shamir import ORDER, _second_base

SCHEMES = ["pedersen", "feldman"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("secret", [0, 1, ORDER - 1, secrets.randbelow(ORDER)], ids=["0", "1", "-1", "random"])
def test_any_three_of_five_recover_the_secret(secret, scheme):
    shares, commitments = split(secret, 3, 5, scheme)
    for chosen in itertools.combinations(shares, 3):
        assert recover(chosen, commitments) == secret
    assert recover(shares, commitments) == secret


@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_shares_fit_every_secret(scheme):
    # For each other secret there is exactly one polynomial through two shares of three: the constant term is free.
    shares, _ = split(42, 3, 3, scheme)
    (x, y), (u, v) = (share.at_holder() for share in shares[:2])
    for guess in (0, 42, 10**70):
        # y = guess + b·x + c·x² and v = guess + b·u + c·u² have one solution (b, c).
        determinant = (x * u * u - u * x * x) % ORDER
        b = ((y - guess) * u * u - (v - guess) * x * x) * pow(determinant, -1, ORDER) % ORDER
        c = (x * (v - guess) - u * (y - guess)) * pow(determinant, -1, ORDER) % ORDER
        assert (guess + b * x + c * x * x - y) % ORDER == 0
        assert (guess + b * u + c * u * u - v) % ORDER == 0


def test_feldman_shows_the_secrets_point_and_pedersen_does_not():
    first, second = ({split(7, 2, 2, scheme)[1].points[0] for _ in range(5)} for scheme in ("feldman", "pedersen"))
    assert (len(first), len(second)) == (1, 5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_wrong_share_is_named_and_not_used(scheme):
    shares, commitments = split(99, 2, 3, scheme)
    for wrong in (
        replace(shares[1], _value=(shares[1]._value + 1) % ORDER),
        replace(shares[1], holder=3),
        split(99, 2, 3, scheme)[0][1],
    ):
        with pytest.raises(CiphertextRejected, match=f"holder {wrong.holder} does not fit") as caught:
            recover([shares[0], wrong], commitments)
        assert str(wrong._value) not in str(caught.value)


def test_too_few_or_repeated_shares_are_refused():
    shares, commitments = split(99, 3, 4)
    for few in ([], shares[:2], [shares[0]] * 3):
        with pytest.raises(CiphertextRejected, match="3 shares of different holders"):
            recover(few, commitments)


def test_shares_travel_as_bytes_and_nothing_else_is_read():
    shares, commitments = split(5, 2, 3)
    back = [HeldShare.from_bytes(share.to_bytes()) for share in shares]
    assert recover(back[1:], commitments) == 5
    raw = shares[0].to_bytes()
    too_large = raw[:9] + ORDER.to_bytes(32, "little") + raw[41:]
    for bad in (b"", raw[:-1], raw + b"\0", b"XXXX" + raw[4:], raw[:4] + b"\x02" + raw[5:], raw[:5], too_large, "text"):
        with pytest.raises(CiphertextRejected):
            HeldShare.from_bytes(bad)


def test_commitments_outside_the_group_are_refused():
    small_order = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
    for point in (bytes(32), b"\xff" * 32, small_order, b"short"):
        with pytest.raises(CiphertextRejected, match="no point of the group"):
            Commitments("pedersen", (point,))
    with pytest.raises(BadInput):
        Commitments("other", (_second_base(),))
    assert len(Commitments("pedersen", (_second_base(),)).fingerprint) == 64


@pytest.mark.parametrize(
    ("secret", "needed", "holders"), [(-1, 1, 1), (ORDER, 1, 1), (5, 0, 1), (5, 3, 2), (5, 1, 1001)]
)
def test_wrong_numbers_are_refused(secret, needed, holders):
    with pytest.raises(BadNumber):
        split(secret, needed, holders)
    with pytest.raises(BadInput):
        split(5, 1, 1, "none")
