// Answers given again and again: a permanent report, made once and kept on the device, and a fresh one of it each time.

import { below, bitCoins, bytesOf, numberOf, trim, widthOf } from "./coins.mjs";
import { WORD, bitsFor, check, probability, threshold, whole } from "./exact.mjs";

/** RAPPOR's two layers. See memoised.py. */
function memoised(told, open) {
  check(told.encoding === "direct" || told.encoding === "unary", "encoding is direct or unary.");
  const unary = told.encoding === "unary";
  const domain = whole(told.domain, "domain", 2, unary ? 2 ** 20 : 2 ** 24);
  const bits = unary ? domain : bitsFor(domain);
  const width = widthOf(bits);
  const [p, q] = [threshold(probability(told.permanent_p, "permanent_p")), threshold(probability(told.permanent_q, "permanent_q"))];
  const flip = probability(told.flip, "flip");
  const run = threshold(flip);
  const others = BigInt(domain - 1);
  const keep = WORD - others * run;
  check(unary ? run < WORD / 2n : keep > run, "the second layer leaves nothing of the first.");
  check(unary || p === WORD - others * q, "permanent_p must be what direct encoding leaves.");
  // Opening the first layer certifies the lifetime: all reports ever made from it cost no more.
  const first = open({
    mechanism: unary ? "unary-encoding" : "direct-encoding",
    ...{ bits, width, domain, q: told.permanent_q, loss: told.lifetime },
    ...(unary ? { p: told.permanent_p } : {}),
  });
  const flipped = (one) => one * (WORD - run) + (WORD - one) * run;
  const ratio = unary
    ? [flipped(p) * (WORD * WORD - flipped(q)), (WORD * WORD - flipped(p)) * flipped(q)]
    : [p * keep + others * q * run, p * run + q * keep + (others - 1n) * q * run];
  function again(kept, source) {
    check(kept instanceof Uint8Array && kept.length === width, "this is no permanent report of this mechanism.");
    if (!unary) return bytesOf(below(keep, run, numberOf(kept), BigInt(domain), source), width);
    const coins = trim(bitCoins(flip, width, source), domain);
    return kept.map((byte, place) => byte ^ coins[place]);
  }
  return {
    domain,
    bits,
    ratios: [ratio],
    thresholds: { p, q, flip: run },
    toss: (value, source) => again(first.perturb(value, source), source),
    more: { lifetime: told.lifetime, remember: first.perturb, again },
  };
}

export const MEMOISED = {
  memoised: {
    keys: ["domain", "encoding", "flip", "lifetime", "permanent_p", "permanent_q"],
    read: memoised,
  },
};
