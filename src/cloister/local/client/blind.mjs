// RSABSSA-SHA384-PSS-Randomized (RFC 9474), the device's half: encode, blind, unblind, verify. See vault/ballot.py.

import { base64url, canonical } from "./envelope.mjs";
import { Refusal, check } from "./exact.mjs";
import { systemSource } from "./random.mjs";

export const SCHEME = "RSABSSA-SHA384-PSS-Randomized";
export const SALT_BYTES = 48;
const HASH_BYTES = 48;
const [LEAST_BITS, MOST_BITS] = [2048, 8192]; // a larger key would only keep a phone busy
const [LEAST_EXPONENT, MOST_EXPONENT] = [65537n, 1n << 32n];
const FIELDS = "bits,e,n,scheme";

const bitsOf = (number) => number.toString(2).length;
const hexOf = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
export const numberOf = (bytes) => BigInt(`0x0${hexOf(bytes)}`);

/** A number as so many bytes, the largest first. */
export function bytesOf(number, size) {
  return Uint8Array.from(number.toString(16).padStart(2 * size, "0").match(/../g), (two) => Number.parseInt(two, 16));
}

export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** The bytes that are spelled so, in the one spelling without padding that they have. */
export function unbase64url(text, name) {
  check(typeof text === "string" && /^[A-Za-z0-9_-]*$/.test(text), `${name} must be base64url without padding.`);
  const letters = text.replaceAll("-", "+").replaceAll("_", "/");
  const bytes = text.length % 4 === 1 ? new Uint8Array() : Uint8Array.from(atob(letters), (sign) => sign.charCodeAt(0));
  check(base64url(bytes) === text, `${name} must be base64url without padding.`);
  return bytes;
}

async function hash(name, bytes) {
  const subtle = globalThis.crypto?.subtle;
  check(
    typeof subtle?.digest === "function",
    "this page was not opened over https, so the browser hashes nothing and no ballot can be made. Open it with https.",
  );
  return new Uint8Array(await subtle.digest(name, bytes));
}

/** A published key, doubted: a weak or odd-looking one is refused. */
export function readKey(told) {
  check(
    told !== null && typeof told === "object" && Object.keys(told).sort().join() === FIELDS,
    "a key for blind signatures has the fields scheme, bits, n and e.",
  );
  check(told.scheme === SCHEME, `the key's scheme must be ${SCHEME}.`);
  const [n, e] = [numberOf(unbase64url(told.n, "n")), numberOf(unbase64url(told.e, "e"))];
  const [bits, size] = [bitsOf(n), Math.ceil(bitsOf(n) / 8)];
  check(
    bits === told.bits && base64url(bytesOf(n, size)) === told.n && base64url(bytesOf(e, Math.ceil(bitsOf(e) / 8))) === told.e,
    "the key's size is not what it says, or n or e has more than one spelling.",
  );
  check(n % 2n === 1n && bits >= LEAST_BITS && bits <= MOST_BITS, `a modulus is odd and has ${LEAST_BITS} to ${MOST_BITS} bits.`);
  check(e % 2n === 1n && e >= LEAST_EXPONENT && e < MOST_EXPONENT, "a key's exponent is odd, from 65537 to 2^32.");
  return Object.freeze({ n, e, bits, size });
}

/** SHA-256 of the key as canonical JSON, in hexadecimal. */
export async function fingerprintOf(told) {
  readKey(told);
  return hexOf(await hash("SHA-256", new TextEncoder().encode(canonical(told))));
}

function power(base, exponent, n) {
  let [result, square] = [1n, base % n];
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = (result * square) % n;
    square = (square * square) % n;
  }
  return result;
}

/** The inverse modulo n, or undefined where there is none. */
export function inverse(number, n) {
  let [a, b, x, y] = [n, number % n, 0n, 1n];
  while (b) {
    const times = a / b;
    [a, b, x, y] = [b, a - times * b, y, x - times * y];
  }
  if (a !== 1n) return undefined;
  return x < 0n ? x + n : x;
}

/** A secret number from 1 to n - 1, each equally likely, that has an inverse, with that inverse. */
export function unit({ n, bits, size }, source = systemSource) {
  for (;;) {
    const drawn = source.bytes(size);
    drawn[0] &= 0xff >> (8 * size - bits);
    const factor = numberOf(drawn);
    const undone = factor > 0n && factor < n ? inverse(factor, n) : undefined;
    if (undone !== undefined) return { factor, undone };
  }
}

/** MGF1 with SHA-384, laid over a block. */
async function masked(block, seed) {
  const rounds = Math.ceil(block.length / HASH_BYTES);
  const parts = Array.from({ length: rounds }, (_, part) => hash("SHA-384", joined(seed, bytesOf(BigInt(part), 4))));
  const mask = joined(...(await Promise.all(parts)));
  return block.map((one, place) => one ^ mask[place]);
}

async function digestOf(message, salt) {
  return hash("SHA-384", joined(new Uint8Array(8), await hash("SHA-384", message), salt));
}

/** EMSA-PSS-ENCODE of RFC 8017, 9.1.1, for one bit less than the modulus has. */
async function encode(message, salt, bits) {
  const size = Math.ceil(bits / 8);
  const digest = await digestOf(message, salt);
  const empty = new Uint8Array(size - HASH_BYTES - salt.length - 2);
  const block = await masked(joined(empty, [1], salt), digest);
  block[0] &= 0xff >> (8 * size - bits);
  return joined(block, digest, [0xbc]);
}

/** RSASSA-PSS-VERIFY of RFC 8017, 8.1.2, with SHA-384 and a salt of 48 bytes. */
export async function verify({ n, e, bits, size }, message, signature) {
  const [root, width] = [numberOf(signature), Math.ceil((bits - 1) / 8)];
  if (signature.length !== size || root >= n) return false;
  const encoded = power(root, e, n);
  if (bitsOf(encoded) > bits - 1) return false;
  const bytes = bytesOf(encoded, width);
  const [block, digest] = [bytes.slice(0, width - HASH_BYTES - 1), bytes.slice(width - HASH_BYTES - 1, -1)];
  const plain = await masked(block, digest);
  plain[0] &= 0xff >> (8 * width - (bits - 1));
  const from = plain.length - SALT_BYTES;
  const formed = plain.slice(0, from).every((one, place) => one === (place === from - 1 ? 1 : 0));
  const expected = await digestOf(message, plain.slice(from));
  return bytes[width - 1] === 0xbc && formed && expected.every((one, place) => one === digest[place]);
}

/** Blind of RFC 9474, 4.2, for a given salt and factor: the published test vectors give both. */
export async function blind({ n, e, bits, size }, message, salt, factor) {
  const encoded = numberOf(await encode(message, salt, bits - 1));
  check(inverse(encoded, n) !== undefined, "the key's modulus has a small factor, so it is no proper key.");
  return bytesOf((encoded * power(factor, e, n)) % n, size);
}

/** Finalize of RFC 9474, 4.4: the signature, which is verified before anybody sees it. */
export async function unblind(key, message, blindSignature, undone) {
  const signature = bytesOf((numberOf(blindSignature) * undone) % key.n, key.size);
  const holds = blindSignature.length === key.size && (await verify(key, message, signature));
  if (!holds) throw new Refusal("what came back is no signature on this ballot, so it is not used. Ask for it again.");
  return signature;
}
