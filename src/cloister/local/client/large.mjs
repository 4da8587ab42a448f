// One of very many choices: the count-mean sketch, and prefixes for heavy hitters.

import { below, bitCoins, bytesOf, put, trim, uniform, widthOf, word } from "./coins.mjs";
import { WORD, bitsFor, check, prime, probability, threshold, whole } from "./exact.mjs";
import { shake256 } from "./shake.mjs";

/** A word whose low bits are a row of the public table, a word for the true bit, then coins for all buckets. */
function sketch(told) {
  const domain = whole(told.domain, "domain", 2, 2 ** 32);
  const buckets = whole(told.buckets, "buckets", 3, 2 ** 16);
  const rows = whole(told.rows, "rows", 1, 2 ** 16);
  check(buckets % 2 === 1, "buckets must be an odd number.");
  check((rows & (rows - 1)) === 0, "rows must be a power of two.");
  check(typeof told.salt === "string" && !/\p{Surrogate}/u.test(told.salt), "salt is a text.");
  const [p, q] = [probability(told.p, "p"), probability(told.q, "q")];
  const [one, other] = [threshold(p), threshold(q)];
  check(one > other, "the bit of the true value must be likelier than the others; otherwise bits tell nothing.");
  let table; // made when it is needed first: it is public, and long
  return {
    domain,
    bits: 16 + buckets,
    ratios: [[one * (WORD - other), (WORD - one) * other]],
    thresholds: { p: one, q: other },
    toss(value, source) {
      table ??= coefficients(`${told.salt}|${rows}|${buckets}`, rows * 8 * widthOf(bitsFor(domain)), buckets);
      const row = Number(word(source) & BigInt(rows - 1));
      const truth = word(source) < one;
      const bits = bitCoins(q, widthOf(buckets), source);
      put(bits, folded(table, row, value, domain, buckets), truth);
      const report = new Uint8Array(2 + bits.length);
      report.set([row & 255, row >> 8]);
      report.set(trim(bits, buckets), 2);
      return report;
    },
  };
}

/** Uniform integers from SHAKE-256 of a public text: 32-bit words, those beyond the last full run left out. */
function coefficients(text, count, below) {
  const next = shake256(new TextEncoder().encode(`cloister count-mean sketch:${text}`));
  const fair = 2 ** 32 - (2 ** 32 % below);
  const made = new Uint16Array(count);
  for (let place = 0; place < count; ) {
    const drawn = next();
    if (drawn < fair) {
      made[place] = drawn % below;
      place += 1;
    }
  }
  return made;
}

/** The bucket of a value in a row: the sum of the row's coefficients where the value has a 1. */
function folded(table, row, value, domain, buckets) {
  const width = 8 * widthOf(bitsFor(domain));
  let total = 0;
  for (let place = 0; place < width; place += 1) {
    if (Math.floor(value / 2 ** place) % 2) total += table[row * width + place];
  }
  return total % buckets;
}

/** A word for the level, the seed's words, one word for the bucket: level + levels · (seed · buckets + bucket). */
function heavy(told) {
  const length = whole(told.length, "length", 1, 32);
  const chunk = whole(told.chunk, "chunk", 1, length);
  check(length % chunk === 0, "chunks must make up the length.");
  const g = BigInt(prime(told.buckets, "buckets"));
  let [digits, reach] = [1n, g];
  while (reach < 1n << BigInt(chunk)) [digits, reach] = [digits + 1n, reach * g];
  const levels = BigInt(length / chunk);
  const outputs = levels * reach ** levels * g;
  check(digits * reach * g * g <= 1n << 26n && outputs <= 1n << 63n, "there are too many buckets for such chunks.");
  const run = threshold(probability(told.lie, "lie"));
  const keep = WORD - (g - 1n) * run;
  check(keep > run, "the value's own bucket must be likelier than others; otherwise reports tell nothing.");
  // A quarter of those who remain are asked at each level but the last.
  const ends = [];
  for (let [level, rest] = [1n, WORD]; level < levels; level += 1n) {
    rest = (rest * 3n) / 4n;
    ends.push(WORD - rest);
  }
  const bits = bitsFor(outputs);
  /** The prefix's last chunk meets the seed's lowest digits. */
  function hashed(level, seed, value) {
    let total = 0n;
    let prefix = value >> BigInt(length - chunk * (level + 1));
    for (let turn = 0; turn <= level; turn += 1) {
      let part = prefix & ((1n << BigInt(chunk)) - 1n);
      prefix >>= BigInt(chunk);
      for (let digit = 0n; digit < digits; digit += 1n) {
        total += (seed % g) * (part % g);
        [seed, part] = [seed / g, part / g];
      }
    }
    return total % g;
  }
  return {
    domain: 2 ** length,
    bits,
    ratios: [[keep, run]], // level and seed do not depend on the value
    thresholds: { keep, run },
    toss(value, source) {
      const drawn = word(source);
      const level = ends.filter((end) => end <= drawn).length;
      const seed = uniform(reach ** BigInt(level + 1), source);
      const bucket = below(keep, run, hashed(level, seed, BigInt(value)), g, source);
      return bytesOf(BigInt(level) + levels * (seed * g + bucket), widthOf(bits));
    },
  };
}

export const LARGE = {
  "count-mean-sketch": { keys: ["buckets", "domain", "p", "q", "rows", "salt"], read: sketch },
  "heavy-hitters": { keys: ["buckets", "chunk", "length", "lie"], read: heavy },
};
