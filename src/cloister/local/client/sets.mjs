// Multiple choice, up to `most` of `domain` options: one option named, bits that share one budget, or one option drawn.

import { bitCoins, bytesOf, put, trim, uniform, widthOf, word } from "./coins.mjs";
import { Refusal, WORD, bitsFor, check, probability, threshold, whole } from "./exact.mjs";

const LARGEST = 2 ** 20;

/** The chosen options in ascending order. What was refused is not shown. */
function chosen(value, domain, most) {
  const options = value instanceof Set || Array.isArray(value) ? [...value].sort((one, other) => one - other) : null;
  const fit = options?.every(
    (option, place) => Number.isSafeInteger(option) && option >= 0 && option < domain && option !== options[place - 1],
  );
  if (!fit || options.length > most) {
    throw new Refusal(`an answer is a list of at most ${most} different whole numbers from 0 to ${domain - 1}.`);
  }
  return options;
}

/** One word: a chosen option with own words each, another with run words each, or `domain`, which says nothing. */
function one(told) {
  const domain = whole(told.domain, "domain", 2, LARGEST);
  const most = whole(told.most, "most", 1, domain);
  const [d, m, run] = [BigInt(domain), BigInt(most), threshold(probability(told.q, "q"))];
  const own = (WORD - d * run) / m;
  check(own > run, "a chosen option must be likelier than any other; otherwise reports tell nothing.");
  const bits = bitsFor(domain + 1);
  function named(options, drawn) {
    if (drawn < m * own) return options[Number(drawn / own)] ?? domain;
    let place = (drawn - m * own) / run;
    if (place > d) place = d;
    for (const option of options) if (BigInt(option) <= place) place += 1n;
    return place < d ? Number(place) : domain;
  }
  return {
    domain,
    bits,
    ratios: [
      [own, run],
      [WORD - d * run, WORD - m * own - (d - m) * run],
    ],
    thresholds: { own, run },
    accept: (value) => chosen(value, domain, most),
    toss: (options, source) => bytesOf(BigInt(named(options, word(source))), widthOf(bits)),
  };
}

const largest = (some) => some.reduce((one, other) => (one > other ? one : other));
const least = (some) => some.reduce((one, other) => (one < other ? one : other));

/** One word says which chosen option is the first that shows; then coins for all options. See sets.py. */
function bits(told) {
  const domain = whole(told.domain, "domain", 2, LARGEST);
  const most = whole(told.most, "most", 1, Math.min(domain, 1024));
  const [p, q] = [probability(told.p, "p"), probability(told.q, "q")];
  const rest = q.d - q.n;
  const [ends, words] = [[], []];
  let [weight, scale, total] = [threshold(p), 1n, 0n];
  for (let place = 0; place < most; place += 1) {
    words.push(weight / scale);
    total += weight / scale;
    ends.push(total);
    [weight, scale] = [weight * rest, scale * q.d];
  }
  check(
    threshold(p) > threshold(q) && total < WORD && words.every((many) => many > 0n),
    "a chosen option must be likelier than any other, able to show, and not sure to.",
  );
  // How much likelier than coins that fell for nobody: if the first chosen 1 is number j, and if none of c is 1. Words
  // are rounded down one by one, so each is looked at; all are multiplied by the same number. See sets.py.
  const [over, under] = [[1n], [1n]];
  for (let place = 0; place < most; place += 1) {
    over.push(over[place] * q.d);
    under.push(under[place] * rest);
  }
  const shown = words.map((many, j) => many * over[j + 1] * under[most - j]);
  const unseen = [0n, ...ends].map((end, c) => (WORD - end) * q.n * over[c] * under[most - c]);
  const ratios = [[...shown, ...unseen.slice(0, domain)], unseen].map((some) => [largest(some), least(some)]);
  return {
    domain,
    bits: domain,
    ratios,
    thresholds: Object.fromEntries(ends.map((end, place) => [place, end])),
    accept: (value) => chosen(value, domain, most),
    toss(options, source) {
      const drawn = word(source);
      const first = ends.filter((end) => end <= drawn).length;
      const coins = trim(bitCoins(q, widthOf(domain), source), domain);
      options.forEach((option, place) => {
        if (place <= first) put(coins, option, place === first);
      });
      return coins;
    },
  };
}

/** One of `most` places, uniform, and the option there (or `domain`) through the inner mechanism. */
function padded(told, open) {
  const domain = whole(told.domain, "domain", 2, 2 ** 32 - 1);
  const most = whole(told.most, "most", 1, Math.min(domain, LARGEST));
  const named = Object.entries(told).filter(([name]) => name.startsWith("inner."));
  const inner = open(Object.fromEntries(named.map(([name, fact]) => [name.slice("inner.".length), fact])));
  const known = ["direct-encoding", "local-hashing", "subset-selection", "unary-encoding"];
  check(known.includes(inner.name) && inner.domain === domain + 1, "inside is a mechanism with one value more than options.");
  check(inner.level === told.loss, "the level is that of the mechanism inside.");
  return {
    domain,
    bits: inner.bits,
    ratios: [], // the inner mechanism was doubted when it was opened, and the place does not depend on the answer
    thresholds: inner.thresholds,
    accept: (value) => chosen(value, domain, most),
    toss(options, source) {
      const place = Number(uniform(BigInt(most), source));
      return inner.perturb(options[place] ?? domain, source);
    },
  };
}

export const SETS = {
  "one-of-set": { keys: ["domain", "most", "q"], read: one },
  "set-bits": { keys: ["domain", "most", "p", "q"], read: bits },
  "padded-sample": { keys: ["domain", "most"], inner: true, read: padded },
};
