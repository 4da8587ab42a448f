// SHAKE-256 (FIPS 202), for public tables only: browsers have no extendable hash of their own. Nothing secret comes here.

const RATE = 34; // words of 32 bits
const TURNS = [1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44];
const PLACES = [10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1];
// Round constants, the low and the high half of each.
const LOW = [
  0x00000001, 0x00008082, 0x0000808a, 0x80008000, 0x0000808b, 0x80000001, 0x80008081, 0x00008009, 0x0000008a, 0x00000088,
  0x80008009, 0x8000000a, 0x8000808b, 0x0000008b, 0x00008089, 0x00008003, 0x00008002, 0x00000080, 0x0000800a, 0x8000000a,
  0x80008081, 0x00008080, 0x80000001, 0x80008008,
];
const HIGH = [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1].map((bit) => bit << 31);

/** Keccak-f[1600]: lane i is state[2i] (low half) and state[2i + 1]. In place. */
function permute(state) {
  const sums = new Uint32Array(10);
  for (let round = 0; round < 24; round += 1) {
    for (let at = 0; at < 10; at += 1) {
      sums[at] = state[at] ^ state[at + 10] ^ state[at + 20] ^ state[at + 30] ^ state[at + 40];
    }
    for (let x = 0; x < 10; x += 2) {
      const after = (x + 2) % 10;
      const low = sums[(x + 8) % 10] ^ ((sums[after] << 1) | (sums[after + 1] >>> 31));
      const high = sums[(x + 9) % 10] ^ ((sums[after + 1] << 1) | (sums[after] >>> 31));
      for (let at = x; at < 50; at += 10) {
        state[at] ^= low;
        state[at + 1] ^= high;
      }
    }
    let low = state[2];
    let high = state[3];
    for (let at = 0; at < 24; at += 1) {
      const to = 2 * PLACES[at];
      const turn = TURNS[at] & 31; // never 0
      const [first, second] = TURNS[at] & 32 ? [high, low] : [low, high];
      low = state[to];
      high = state[to + 1];
      state[to] = (first << turn) | (second >>> (32 - turn));
      state[to + 1] = (second << turn) | (first >>> (32 - turn));
    }
    for (let y = 0; y < 50; y += 10) {
      for (let x = 0; x < 10; x += 1) sums[x] = state[y + x];
      for (let x = 0; x < 10; x += 1) state[y + x] = sums[x] ^ (~sums[(x + 2) % 10] & sums[(x + 4) % 10]);
    }
    state[0] ^= LOW[round];
    state[1] ^= HIGH[round];
  }
}

/** The stream of little-endian 32-bit words of SHAKE-256 of some bytes: each call gives the next. */
export function shake256(bytes) {
  const state = new Uint32Array(50);
  const count = Math.floor(bytes.length / (4 * RATE)) + 1;
  const padded = new Uint8Array(4 * RATE * count);
  padded.set(bytes);
  padded[bytes.length] = 0x1f;
  padded[padded.length - 1] |= 0x80;
  for (let at = 0; at < padded.length; at += 4) {
    const place = (at / 4) % RATE;
    state[place] ^= padded[at] | (padded[at + 1] << 8) | (padded[at + 2] << 16) | (padded[at + 3] << 24);
    if (place === RATE - 1) permute(state);
  }
  let used = 0;
  return function next() {
    if (used === RATE) {
      permute(state);
      used = 0;
    }
    used += 1;
    return state[used - 1];
  };
}
