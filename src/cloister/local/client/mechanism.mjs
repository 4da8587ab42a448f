// From a description, as Python's `mechanism.describe()` writes it, to a mechanism that this device is willing to use.
//
// The device does not trust whoever sent the description: it computes the largest ratio of likelihoods from the very
// integers that it will compare random words with, and refuses if that exceeds e^epsilon. Unknown means refuse.

import { BITS } from "./bits.mjs";
import { CHOICE } from "./choice.mjs";
import { widthOf } from "./coins.mjs";
import { Refusal, check, epsilonOf, within } from "./exact.mjs";
import { HISTOGRAM } from "./histogram.mjs";
import { LARGE } from "./large.mjs";
import { MEMOISED } from "./memoised.mjs";
import { NUMBER } from "./number.mjs";
import { systemSource } from "./random.mjs";
import { SETS } from "./sets.mjs";

const KNOWN = { ...CHOICE, ...BITS, ...HISTOGRAM, ...LARGE, ...NUMBER, ...SETS, ...MEMOISED };
const ALWAYS = ["bits", "loss", "mechanism", "width"];

/** What a description means, checked: `perturb(value)` makes a report. Throws a Refusal otherwise. */
export function open(description) {
  check(description !== null && typeof description === "object" && !Array.isArray(description), "a description is a JSON object.");
  const told = Object.freeze({ ...description });
  check(typeof told.mechanism === "string" && Object.hasOwn(KNOWN, told.mechanism), "this client does not know the mechanism.");
  const { keys, inner, read } = { inner: false, ...KNOWN[told.mechanism] };
  const named = Object.keys(told).filter((name) => !(inner && name.startsWith("inner.")));
  check(
    named.sort().join() === [...ALWAYS, ...keys].sort().join(),
    "the description has other fields than its mechanism.",
  );
  const epsilon = epsilonOf(told.loss);
  // All of its own: whatever else runs on the page may have given every object more.
  const made = { logs: [], more: {}, accept: (value) => choice(value, made.domain), ...read(told, open) };
  check(made.bits === told.bits && widthOf(made.bits) === told.width, "the description states another length of report.");
  // The logarithm of what Laplace noise tells is itself a fraction, compared as it is.
  const doubted = [
    ...made.ratios.map(([n, d]) => within(n, d, epsilon)),
    ...made.logs.map(([n, d]) => n * epsilon.d <= epsilon.n * d),
  ];
  check(doubted.every(Boolean), "these reports would tell more than the level says, so nothing is sent.");
  const { accept } = made;
  return Object.freeze({
    description: told,
    name: told.mechanism,
    level: told.loss,
    domain: made.domain,
    bits: made.bits,
    width: told.width,
    thresholds: Object.freeze(made.thresholds),
    // A memoised mechanism also has its `lifetime`, `remember(value)` (the report to keep) and `again(kept)`.
    ...made.more,
    /** The answer as the mechanism takes it: a position, a sorted list of positions, a point of a grid. */
    accept,
    /** The report's bytes. It costs the level, once; a second report about the same value costs it again. */
    perturb: (value, source = systemSource) => made.toss(accept(value), source),
  });
}

/** A position in the list of choices; true and false where there are two. The refused value is not shown. */
function choice(value, domain) {
  const place = domain === 2 && typeof value === "boolean" ? Number(value) : value;
  if (!Number.isSafeInteger(place) || place < 0 || place >= domain) {
    throw new Refusal(`an answer is a whole number from 0 to ${domain - 1}.`);
  }
  return place;
}

/** The names of the mechanisms that this client knows. */
export const MECHANISMS = Object.freeze(Object.keys(KNOWN));
