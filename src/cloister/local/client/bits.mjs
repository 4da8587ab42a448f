// One of several choices as one bit for each: unary encoding, its thresholded twin, subset selection.

import { bitCoins, holds, numberOf, put, trim, widthOf, word } from "./coins.mjs";
import { WORD, check, epsilonOf, fraction, halfExp, probability, ratio, threshold, whole } from "./exact.mjs";

const LARGEST = 2 ** 20;

/** One word for the true bit, then coins for all bits, of which the true one is replaced. */
function unary(told) {
  const domain = whole(told.domain, "domain", 2, LARGEST);
  const [p, q] = [probability(told.p, "p"), probability(told.q, "q")];
  const [one, other] = [threshold(p), threshold(q)];
  check(one > other, "the bit of the true value must be likelier than the others; otherwise bits tell nothing.");
  return {
    domain,
    bits: domain,
    ratios: [[one * (WORD - other), (WORD - one) * other]],
    thresholds: { p: one, q: other },
    toss(value, source) {
      const truth = word(source) < one;
      const bits = bitCoins(q, widthOf(domain), source);
      put(bits, value, truth);
      return trim(bits, domain);
    },
  };
}

/** Unary encoding whose bits say which noisy components exceed theta: p and q must follow from theta and the level. */
function thresholded(told) {
  const [theta, epsilon] = [fraction(told.theta, "theta"), epsilonOf(told.loss)];
  check(theta.n <= theta.d, "theta must lie between 0 and 1.");
  const half = (n) => above(ratio(n * epsilon.n, 2n * theta.d * epsilon.d), epsilon);
  const [missed, other] = [half(theta.d - theta.n), half(theta.n)];
  const [p, q] = [probability(told.p, "p"), probability(told.q, "q")];
  const follows = p.d === missed.d && p.n === missed.d - missed.n && q.d === other.d && q.n === other.n;
  check(follows, "p and q do not follow from theta and the level.");
  return unary(told);
}

/** e^(-power)/2, rounded up to the multiple of the largest power of 1/2 that is hardly above it: see dyadic.py. */
function above(power, epsilon) {
  const [n, d] = halfExp(power);
  // The share by which it may be above: epsilon/4096, at most 1/1024.
  const [more, of] = epsilon.n > 4n * epsilon.d ? [1n, 1024n] : [epsilon.n, 4096n * epsilon.d];
  for (let place = 0n; ; place += 1n) {
    const rounded = ((n << place) + d - 1n) / d;
    if (rounded * d * of <= (n << place) * (of + more)) return ratio(rounded, 1n << place);
  }
}

/** A uniform set of fixed size that holds the true value with probability p: coins that are mended to the size.
 *
 * `start`, the coins' probability, decides how much there is to mend and nothing else: see subset.py.
 */
function subset(told) {
  const domain = whole(told.domain, "domain", 2, LARGEST);
  const size = whole(told.size, "size", 1, domain - 1);
  const one = threshold(probability(told.p, "p"));
  const start = fraction(told.start, "start");
  check(start.n < start.d && (1n << 32n) % start.d === 0n, "start must be a multiple of 2^-32 below 1.");
  check(tries(domain, size, Number(start.n) / Number(start.d)) <= 2 * domain, "start is too far from the size of a set: an answer would take too long.");
  const [k, d] = [BigInt(size), BigInt(domain)];
  check(one * (d - k) > (WORD - one) * k, "the true value must be likelier in a set than others; otherwise sets tell nothing.");
  return {
    domain,
    bits: domain,
    ratios: [[one * (d - k), (WORD - one) * k]],
    thresholds: { p: one },
    toss(value, source) {
      const included = word(source) < one;
      const width = widthOf(domain);
      const bits = trim(start.n ? bitCoins(start, width, source) : new Uint8Array(width), domain);
      let missing = size - (included ? 1 : 0);
      for (let place = 0; place < domain; place += 1) missing -= holds(bits, place) ? 1 : 0;
      mend(bits, Math.abs(missing), missing > 0, -1, domain, source);
      const held = holds(bits, value);
      put(bits, value, included);
      mend(bits, held ? 1 : 0, true, value, domain, source);
      return bits;
    },
  };
}

/** About how many places are tried until coins that come up with chance r are a set of that size: three deviations off.
 *
 * Adding to a set that is nearly full, and taking from one that is nearly empty, takes most. Python's start needs at most
 * 1.71 tries for each value of the domain. In floats: it decides the time and nothing else.
 */
function tries(domain, size, r) {
  const far = 3 * Math.sqrt(domain * r * (1 - r));
  const [few, many] = [Math.max(0, domain * r - far), Math.min(domain, domain * r + far)];
  return domain * Math.max(Math.log((domain - few + 1) / (domain - size + 1)), Math.log((many + 1) / (size + 1)));
}

/** Set (or clear) as many bits, each uniform among those that can be. Other places than these change nothing. */
function mend(bits, left, add, closed, domain, source) {
  const bytes = domain <= 2 ** 16 ? 2 : 4;
  const mask = 2 ** (domain - 1).toString(2).length - 1;
  while (left > 0) {
    const place = Number(numberOf(source.bytes(bytes))) & mask;
    if (place < domain && place !== closed && holds(bits, place) !== add) {
      put(bits, place, add);
      left -= 1;
    }
  }
}

export const BITS = {
  "unary-encoding": { keys: ["domain", "p", "q"], read: unary },
  "threshold-encoding": { keys: ["domain", "p", "q", "theta"], read: thresholded },
  "subset-selection": { keys: ["domain", "p", "size", "start"], read: subset },
};
