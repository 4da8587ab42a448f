// What a collector reads off a single report, where that can be said in a few words: the noise made visible.

import { numberOf, holds } from "/static/local/coins.mjs";
import { unbase64url } from "/static/local/blind.mjs";

const NUMBERS = new Set(["randomised-response", "direct-encoding", "memoised direct", "one-of-set"]);
const LISTS = new Set(["subset-selection", "unary-encoding", "set-bits", "memoised unary"]);

/** The positions of the choices that a report names; null where it names none by itself. */
export function reads(envelope) {
  const { mechanism: told, report } = JSON.parse(envelope);
  const name = told.encoding ? `${told.mechanism} ${told.encoding}` : told.mechanism;
  const bytes = unbase64url(report, "report");
  if (NUMBERS.has(name)) {
    const place = Number(numberOf(bytes));
    return place < (told.domain ?? 2) ? [place] : [];
  }
  if (!LISTS.has(name)) return null;
  return Array.from({ length: told.domain }, (_, place) => place).filter((place) => holds(bytes, place));
}
