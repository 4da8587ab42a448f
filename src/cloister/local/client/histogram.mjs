// One of several choices as a vector of integers, each with Laplace noise of its own: histogram encoding, summed.

import { bytesOf } from "./coins.mjs";
import { check, epsilonOf, fraction, whole } from "./exact.mjs";
import { discreteLaplace } from "./laplace.mjs";

const LARGEST = 2 ** 16;

/** The scale of a description, at least `least`, and the limit that follows from it. */
export function noiseOf(told, least, farthest) {
  const scale = fraction(told.scale, "scale");
  const epsilon = epsilonOf(told.loss);
  check(epsilon.n * least >= epsilon.d, "the level is too low for this mechanism.");
  check(scale.n > 0n, "scale must be above 0.");
  // No noise is larger but with a chance below 2^-64; what is, is cut, which tells nothing.
  const limit = whole(told.limit, "limit", 2, farthest);
  check(BigInt(limit) === (45n * scale.n + scale.d - 1n) / scale.d + 1n, "limit must be 45 times the scale and one more.");
  return { scale, limit: BigInt(limit), draw: discreteLaplace(scale) };
}

export const cut = (number, low, high) => (number < low ? low : number > high ? high : number);

/** One draw a component, from the first to the last; the value's own is one larger. 32 bits each on the wire. */
function histogram(told) {
  const domain = whole(told.domain, "domain", 2, LARGEST);
  const { scale, limit, draw } = noiseOf(told, 10000n, 2 ** 30);
  return {
    domain,
    bits: 32 * domain,
    ratios: [],
    logs: [[2n * scale.d, scale.n]], // two components move by one
    thresholds: { numerator: scale.n, denominator: scale.d },
    toss(value, source) {
      const report = new Uint8Array(4 * domain);
      for (let place = 0; place < domain; place += 1) {
        const noisy = draw(source) + (place === value ? 1n : 0n);
        report.set(bytesOf(BigInt.asUintN(32, cut(noisy, -limit, limit)), 4), 4 * place);
      }
      return report;
    },
  };
}

export const HISTOGRAM = {
  "histogram-encoding": { keys: ["domain", "limit", "scale"], read: histogram },
};
