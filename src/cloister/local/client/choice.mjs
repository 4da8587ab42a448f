// Yes or no, and one of several choices: randomised response, direct encoding, local hashing, Hadamard response.
//
// A reader takes a description and returns what it means: `bits`, the largest ratio of likelihoods as [n, d], the
// integer thresholds that random words are compared with, and `toss(value, source)`, the report's bytes.

import { below, bytesOf, uniform, widthOf, word } from "./coins.mjs";
import { WORD, bitsFor, check, prime, probability, threshold, whole } from "./exact.mjs";

/** Yes (1) if a word is below p or q, whichever is the answer's. */
function response(told) {
  const [p, q] = [threshold(probability(told.p, "p")), threshold(probability(told.q, "q"))];
  check(p > q, "yes must be likelier if true than if false; otherwise reports tell nothing.");
  const [yes, no] = [[p, q], [WORD - q, WORD - p]];
  return {
    domain: 2,
    bits: 1,
    ratios: [yes, no],
    thresholds: { p, q },
    toss: (value, source) => Uint8Array.of(word(source) < (value ? p : q) ? 1 : 0),
  };
}

/** The truth, or any other value, one word in all. */
function direct(told) {
  const domain = whole(told.domain, "domain", 2, 2 ** 24);
  const run = threshold(probability(told.q, "q"));
  const keep = WORD - BigInt(domain - 1) * run;
  check(keep > run, "the truth must be likelier than any other value; otherwise reports tell nothing.");
  const bits = bitsFor(domain);
  return {
    domain,
    bits,
    ratios: [[keep, run]],
    thresholds: { keep, run },
    toss: (value, source) => bytesOf(below(keep, run, BigInt(value), BigInt(domain), source), widthOf(bits)),
  };
}

/** A seed of one's own, then direct encoding of the value's bucket: the seed's words first, then one for the bucket. */
function hashing(told) {
  const domain = whole(told.domain, "domain", 2, 2 ** 32);
  const g = BigInt(prime(told.buckets, "buckets"));
  const run = threshold(probability(told.lie, "lie"));
  const keep = WORD - (g - 1n) * run;
  check(keep > run, "the value's own bucket must be likelier than others; otherwise reports tell nothing.");
  let seeds = g;
  while (seeds < BigInt(domain)) seeds *= g;
  check(seeds * g <= 1n << 24n, "there are too many buckets for this domain.");
  const bits = bitsFor(seeds * g);
  return {
    domain,
    bits,
    ratios: [[keep, run]],
    thresholds: { keep, run },
    toss(value, source) {
      const seed = uniform(seeds, source);
      const bucket = below(keep, run, hashed(seed, BigInt(value), g), g, source);
      return bytesOf(seed * g + bucket, widthOf(bits));
    },
  };
}

/** The sum of the products of the digits of seed and value, lowest first. */
function hashed(seed, value, g) {
  let total = 0n;
  for (; value > 0n; seed /= g, value /= g) total += (seed % g) * (value % g);
  return total % g;
}

/** A codeword, block · order + column, one word in all: see hadamard.py for which words belong to which. */
function hadamard(told) {
  const domain = whole(told.domain, "domain", 2, 2 ** 28);
  const blocks = BigInt(whole(told.blocks, "blocks", 1, 2 ** 28));
  check((blocks & (blocks - 1n)) === 0n, "blocks must be a power of two.");
  const order = 1n << BigInt(((BigInt(domain) + blocks - 1n) / blocks).toString(2).length);
  const half = order / 2n;
  const outside = threshold(probability(told.outside, "outside"));
  const inside = WORD / half - (2n * blocks - 1n) * outside;
  check(inside > outside, "a value's own half must be likelier than the rest; otherwise reports tell nothing.");
  const bits = bitsFor(blocks * order);
  function codeword(value, drawn) {
    const [home, row] = [value % blocks, 1n + value / blocks];
    if (drawn < half * inside) return home * order + column(drawn / inside, row, false);
    const rest = (drawn - half * inside) / outside;
    if (rest < half) return home * order + column(rest, row, true);
    const far = rest - half;
    return ((home + 1n + far / order) % blocks) * order + (far % order);
  }
  return {
    domain,
    bits,
    ratios: [[inside, outside]],
    thresholds: { inside, outside },
    toss: (value, source) => bytesOf(codeword(BigInt(value), word(source)), widthOf(bits)),
  };
}

/** The index-th column whose bits in common with the row are even (or odd) in number; the row's lowest bit decides. */
function column(index, row, odd) {
  const low = row & -row;
  const under = low - 1n;
  const found = ((index & ~under) << 1n) | (index & under);
  let common = found & row;
  let parity = false;
  for (; common > 0n; common &= common - 1n) parity = !parity;
  return parity !== odd ? found | low : found;
}

export const CHOICE = {
  "randomised-response": { keys: ["p", "q"], read: response },
  "direct-encoding": { keys: ["domain", "q"], read: direct },
  "local-hashing": { keys: ["buckets", "domain", "lie"], read: hashing },
  "hadamard-response": { keys: ["blocks", "domain", "outside"], read: hadamard },
};
