// Coins of dyadic probability: one word against a threshold, or bits by the byte. The order of random bytes is that of
// coins.py, so that the same bytes make the same report.

import { WORD } from "./exact.mjs";

/** A number spelled by little-endian bytes. */
export function numberOf(bytes) {
  let number = 0n;
  for (let place = bytes.length - 1; place >= 0; place -= 1) number = (number << 8n) | BigInt(bytes[place]);
  return number;
}

/** The little-endian bytes of a number. */
export function bytesOf(number, width) {
  const bytes = new Uint8Array(width);
  for (let place = 0; place < width; place += 1) {
    bytes[place] = Number(number & 255n);
    number >>= 8n;
  }
  return bytes;
}

/** A uniform 64-bit word. */
export function word(source) {
  const bytes = source.bytes(8);
  return new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true);
}

/** Direct encoding: one's own bucket if a word is below keep, else another in runs of `run` words, upwards from it. */
export function below(keep, run, own, buckets, source) {
  const drawn = word(source);
  return drawn < keep ? own : (own + 1n + (drawn - keep) / run) % buckets;
}

/** Uniform on 0 … limit - 1: a word modulo the limit, drawn again in the last, incomplete run. */
export function uniform(limit, source) {
  const fair = (WORD / limit) * limit;
  let drawn = word(source);
  while (drawn >= fair) drawn = word(source);
  return drawn % limit;
}

/** 8·count bits, each 1 with exactly this probability a/2^k: k rounds of random bytes, from a's lowest digit up. */
export function bitCoins(chance, count, source) {
  const rounds = chance.d.toString(2).length - 1;
  const bits = Uint8Array.from(source.bytes(count));
  for (let place = 1; place < rounds; place += 1) {
    const fresh = source.bytes(count);
    const or = (chance.n >> BigInt(place)) & 1n;
    for (let at = 0; at < count; at += 1) bits[at] = or ? bits[at] | fresh[at] : bits[at] & fresh[at];
  }
  return bits;
}

/** Set or clear one bit; the first value is the lowest bit of the first byte. In place. */
export function put(bits, place, one) {
  const mask = 1 << (place & 7);
  bits[place >> 3] = one ? bits[place >> 3] | mask : bits[place >> 3] & ~mask;
}

export function holds(bits, place) {
  return ((bits[place >> 3] >> (place & 7)) & 1) === 1;
}

/** Clear what lies beyond `count` bits. In place. */
export function trim(bits, count) {
  if (count % 8) bits[bits.length - 1] &= (1 << count % 8) - 1;
  return bits;
}

export function widthOf(bits) {
  return Math.floor((bits + 7) / 8);
}
