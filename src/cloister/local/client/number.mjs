// A number between public bounds: the piecewise mechanism and the square wave, a window of likely reports that moves.

import { bytesOf, widthOf, word } from "./coins.mjs";
import { Refusal, WORD, bitsFor, check, probability, threshold, whole } from "./exact.mjs";

/** A bound as the double that Python rounds it to: exact terms of at most 2^53, divided once. */
function bound(text, name) {
  const parts = typeof text === "string" ? /^(-?\d{1,16})(?:\/(\d{1,16}))?$/.exec(text) : null;
  check(parts, `${name} must be a short fraction such as "-5/2".`);
  const [n, d] = [Number(parts[1]), Number(parts[2] ?? "1")];
  check(Number.isSafeInteger(n) && Number.isSafeInteger(d) && d > 0, `${name} must be a short fraction such as "-5/2".`);
  return n / d;
}

function windowed(told) {
  const [low, high] = [bound(told.low, "low"), bound(told.high, "high")];
  check(low < high, "low must be below high.");
  const steps = whole(told.steps, "steps", 1, 2 ** 24);
  const shift = whole(told.shift, "shift", 1, 2 ** 32);
  const window = BigInt(whole(told.window, "window", 1, 2 ** 32));
  const reach = BigInt(steps) * BigInt(shift);
  check(reach + window <= 1n << 32n, "there are at most 2^32 reports.");
  const [p, q] = [threshold(probability(told.p, "p")), threshold(probability(told.q, "q"))];
  check(p > q && window * p + reach * q === WORD, "the probabilities of all reports must add up to 1.");
  const bits = bitsFor(reach + window);
  function report(point, drawn) {
    const first = BigInt(point) * BigInt(shift);
    if (drawn < window * p) return first + drawn / p;
    const rest = (drawn - window * p) / q;
    return rest >= first ? rest + window : rest;
  }
  return {
    domain: steps + 1,
    bits,
    ratios: [[p, q]],
    thresholds: { p, q },
    // Clipped and put on the grid in doubles, in the order of number.py, ahead of all noise.
    accept(value) {
      if (typeof value !== "number" || Number.isNaN(value)) throw new Refusal("an answer is a number.");
      const clipped = Math.min(Math.max(value, low), high);
      return Math.floor(((clipped - low) * steps) / (high - low) + 0.5);
    },
    toss: (point, source) => bytesOf(report(point, word(source)), widthOf(bits)),
  };
}

const KEYS = ["high", "low", "p", "q", "shift", "steps", "window"];

export const NUMBER = {
  piecewise: { keys: KEYS, read: windowed },
  "square-wave": { keys: KEYS, read: windowed },
};
