// Where random bytes come from: the browser's generator, or given bytes for a conformance test.

import { Refusal, check } from "./exact.mjs";

const MOST = 65536; // getRandomValues fills no more at once

/** Secret randomness. The only source whose noise protects. */
export const systemSource = Object.freeze({
  private: true,
  bytes(count) {
    const generator = globalThis.crypto;
    check(typeof generator?.getRandomValues === "function", "this device offers no secret randomness, so nothing is sent.");
    const drawn = new Uint8Array(count);
    for (let start = 0; start < count; start += MOST) {
      generator.getRandomValues(drawn.subarray(start, Math.min(start + MOST, count)));
    }
    return drawn;
  },
});

/** Given bytes, one after the other. Whatever it touches is marked as not private. */
export class ScriptedSource {
  constructor(bytes) {
    this.private = false;
    this.given = Uint8Array.from(bytes);
    this.used = 0;
  }

  bytes(count) {
    if (this.used + count > this.given.length) throw new Refusal("the given random bytes are used up.");
    this.used += count;
    return this.given.slice(this.used - count, this.used);
  }
}

/** Whether a source says of itself that it is secret; what every object says, since a page made it so, is no word of it. */
export const isSecret = (source) => Object.hasOwn(source, "private") && source.private === true;
