// Discrete Laplace noise, exactly: k with probability proportional to e^(-|k| q/p), in integers, for a scale p/q in lowest
// terms. Canonne, Kamath & Steinke 2020, algorithm 2; the twin of `privacy/noise/draws.py`, byte for byte.
//
// The order of random bytes for one draw, all numbers little-endian:
//   1. remainder: ceil(b/8) bytes, b the bits of p - 1, of which the highest b bits count; again while they are p or more.
//   2. a coin of e^(-remainder/p): no bytes if the remainder is 0, else a toss; if it fails, back to 1.
//   3. quotient: one toss U, the largest k with U < e^(-k).
//   4. sign: 1 byte, negative if its highest bit is 1. The size is floor((remainder + p·quotient) / q). If it is 0 and
//      negative, back to 1: zero has one sign only.
// A toss reads 8 bytes as 64 binary places of a uniform number, and 8 more below them whenever the bounds on e^(-x) at
// so many places (`expBounds`) do not decide. None of this depends on what the noise is added to.

import { numberOf, widthOf, word } from "./coins.mjs";

const STEP = 64;
const KEPT = 4096; // bounds remembered for each scale: those of small scales come up again and again

const bitLength = (number) => (number > 0n ? number.toString(2).length : 0);

/** [low, high] with low <= 2^bits e^(-p/q) <= high: the very integers of `privacy/noise/draws.py`. */
export function expBounds(p, q, bits) {
  if (p >= BigInt(bits) * q) return [0n, 1n]; // e^(-bits) < 2^(-bits)
  // e^(-x) = (e^(-x / 2^k))^(2^k) with x / 2^k < 1/16, so the series is short.
  const k = bitLength((16n * p) / q);
  const guard = BigInt(k + 2 + bitLength(BigInt(2 * bits + 130)));
  const work = BigInt(bits) + guard;
  const x = (p << work) / (q << BigInt(k));
  let [total, term] = [1n << work, 1n << work];
  for (let i = 1n; term > 0n; i += 1n) {
    term = ((term * x) >> work) / i;
    total += i & 1n ? -term : term;
  }
  for (let i = 0; i < k; i += 1) total = (total * total) >> work;
  const near = total >> guard;
  return [near > 1n ? near - 1n : 0n, near + 2n];
}

/** A uniform integer of so many bits. */
function integer(bits, source) {
  if (bits === STEP) return word(source);
  const count = widthOf(bits);
  return numberOf(source.bytes(count)) >> BigInt(8 * count - bits);
}

/** A uniform number in [0, 1), known only as far as it had to be drawn. */
class Toss {
  constructor(source) {
    this.source = source;
    this.bits = STEP;
    this.value = integer(STEP, source);
  }

  /** Whether it is below e^(-p/q); `known` has the bounds at 64 places that were computed before, by p. */
  below(p, q, known) {
    for (;;) {
      const [low, high] = this.bits === STEP ? remembered(p, q, known) : expBounds(p, q, this.bits);
      if (this.value < low) return true;
      if (this.value >= high) return false;
      this.value = (this.value << BigInt(STEP)) | integer(STEP, this.source);
      this.bits += STEP;
    }
  }
}

function remembered(p, q, known) {
  let found = known.get(p);
  if (found === undefined) {
    found = expBounds(p, q, STEP);
    if (known.size < KEPT) known.set(p, found);
  }
  return found;
}

/** A sampler of scale p/q: `draw(source)` is one integer, as a BigInt. */
export function discreteLaplace({ n: p, d: q }) {
  const width = bitLength(p - 1n);
  const [coins, quotients] = [new Map(), new Map()];
  function size(source) {
    let remainder;
    do {
      do remainder = integer(width, source);
      while (remainder >= p);
    } while (remainder > 0n && !new Toss(source).below(remainder, p, coins));
    const toss = new Toss(source);
    let quotient = 0n;
    while (toss.below(quotient + 1n, 1n, quotients)) quotient += 1n;
    return (remainder + p * quotient) / q;
  }
  return function draw(source) {
    for (;;) {
      const drawn = size(source);
      const negative = integer(1, source) === 1n;
      if (drawn > 0n || !negative) return negative ? -drawn : drawn;
    }
  };
}
