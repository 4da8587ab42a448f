// A number between public bounds: a window of likely reports that moves (piecewise, square wave), one bit that leans
// (Duchi), either of the two by a coin (hybrid), or Laplace noise.

import { bytesOf, widthOf, word } from "./coins.mjs";
import { Refusal, WORD, bitsFor, check, probability, threshold, whole } from "./exact.mjs";
import { cut, noiseOf } from "./histogram.mjs";

/** A bound as the double that Python rounds it to: exact terms of at most 2^53, divided once. */
function bound(text, name) {
  const parts = typeof text === "string" ? /^(-?\d{1,16})(?:\/(\d{1,16}))?$/.exec(text) : null;
  check(parts, `${name} must be a short fraction such as "-5/2".`);
  const [n, d] = [Number(parts[1]), Number(parts[2] ?? "1")];
  check(Number.isSafeInteger(n) && Number.isSafeInteger(d) && d > 0, `${name} must be a short fraction such as "-5/2".`);
  return n / d;
}

/** What all of them share: bounds and a grid. */
function grid(told, most = 2 ** 24) {
  const [low, high] = [bound(told.low, "low"), bound(told.high, "high")];
  check(low < high, "low must be below high.");
  const steps = whole(told.steps, "steps", 1, most);
  return {
    domain: steps + 1,
    // Clipped and put on the grid in doubles, in the order of number.py, ahead of all noise.
    accept(value) {
      if (typeof value !== "number" || Number.isNaN(value)) throw new Refusal("an answer is a number.");
      const clipped = Math.min(Math.max(value, low), high);
      return Math.floor(((clipped - low) * steps) / (high - low) + 0.5);
    },
  };
}

/** A report for each word: p words each for the window of the point, q each for the `reach` others. */
function moving(told, steps, q) {
  const shift = whole(told.shift, "shift", 1, 2 ** 32);
  const window = BigInt(whole(told.window, "window", 1, 2 ** 32));
  const reach = BigInt(steps) * BigInt(shift);
  check(reach + window <= 1n << 32n, "there are at most 2^32 reports.");
  const p = (WORD - reach * q) / window;
  check(p > q && window * p + reach * q === WORD, "the probabilities of all reports must add up to 1.");
  function report(point, drawn) {
    const first = BigInt(point) * BigInt(shift);
    if (drawn < window * p) return first + drawn / p;
    const rest = (drawn - window * p) / q;
    return rest >= first ? rest + window : rest;
  }
  return { p, outputs: reach + window, report };
}

/** A 1 for words below q + point · rise, which goes from q to 1 - q. */
function leaning(steps, q) {
  const rise = (WORD - 2n * q) / BigInt(steps);
  check(rise > 0n && rise * BigInt(steps) === WORD - 2n * q, "the way from q to 1 - q must be so many 2^64ths a step.");
  return (point, drawn) => (drawn < q + BigInt(point) * rise ? 1n : 0n);
}

function windowed(told) {
  const shared = grid(told);
  const [p, q] = [threshold(probability(told.p, "p")), threshold(probability(told.q, "q"))];
  const { p: left, outputs, report } = moving(told, told.steps, q);
  check(p === left, "the probabilities of all reports must add up to 1.");
  const bits = bitsFor(outputs);
  return {
    ...shared,
    bits,
    ratios: [[p, q]],
    thresholds: { p, q },
    toss: (point, source) => bytesOf(report(point, word(source)), widthOf(bits)),
  };
}

function duchi(told) {
  const shared = grid(told);
  const [p, q] = [threshold(probability(told.p, "p")), threshold(probability(told.q, "q"))];
  check(p === WORD - q, "p must be 1 - q.");
  const bit = leaning(told.steps, q);
  return {
    ...shared,
    bits: 1,
    ratios: [[p, q]],
    thresholds: { p, q },
    toss: (point, source) => bytesOf(bit(point, word(source)), 1),
  };
}

/** Two words: the first chooses, the second is that mechanism's own. Duchi's two reports come last. */
function hybrid(told) {
  const shared = grid(told);
  const [q, flip] = [threshold(probability(told.q, "q")), threshold(probability(told.flip, "flip"))];
  const share = threshold(probability(told.share, "share"));
  const { p, outputs, report } = moving(told, told.steps, q);
  const bit = leaning(told.steps, flip);
  const bits = bitsFor(outputs + 2n);
  return {
    ...shared,
    bits,
    ratios: [
      [p, q],
      [WORD - flip, flip],
    ], // the choice tells nothing
    thresholds: { q, flip, share },
    toss(point, source) {
      const [near, drawn] = [word(source) < share, word(source)];
      return bytesOf(near ? report(point, drawn) : outputs + bit(point, drawn), widthOf(bits));
    },
  };
}

/** The point plus noise, counted from the lowest report. The sum is cut, not the noise, which would end where the value says. */
function laplace(told) {
  const shared = grid(told, 2 ** 15);
  const { scale, limit, draw } = noiseOf(told, 1000n, 2 ** 32);
  const last = BigInt(told.steps) + 2n * limit;
  const bits = bitsFor(last + 1n);
  return {
    ...shared,
    bits,
    ratios: [],
    logs: [[BigInt(told.steps) * scale.d, scale.n]], // one bound against the other
    thresholds: { numerator: scale.n, denominator: scale.d },
    toss: (point, source) => bytesOf(cut(BigInt(point) + draw(source) + limit, 0n, last), widthOf(bits)),
  };
}

const ENDS = ["high", "low", "steps"];
const WINDOW = [...ENDS, "p", "q", "shift", "window"];

export const NUMBER = {
  piecewise: { keys: WINDOW, read: windowed },
  "square-wave": { keys: WINDOW, read: windowed },
  duchi: { keys: [...ENDS, "p", "q"], read: duchi },
  hybrid: { keys: [...ENDS, "flip", "q", "share", "shift", "window"], read: hybrid },
  "laplace-number": { keys: [...ENDS, "limit", "scale"], read: laplace },
};
