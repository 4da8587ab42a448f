// Serves tests: one JSON case a line on stdin, one JSON line out. Started by node with the client's folder as argument.

import { createInterface } from "node:readline";

const [ballot, rsa, { Refusal }] = await Promise.all(
  ["ballot", "blind", "exact"].map((name) => import(new URL(`${name}.mjs`, process.argv[2]))),
);
const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (two) => Number.parseInt(two, 16));
const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");

/** Random bytes that were written down beforehand; says how often it was asked. */
function scripted(texts) {
  const source = { asked: 0, bytes: () => unhex(texts[source.asked++]) };
  return source;
}

const verbs = {
  begin: ({ key, info }) => ballot.begin(key, info),
  finish: ({ state, signature }) => ballot.finish(state, signature),
  fingerprint: async ({ key }) => ({ fingerprint: await rsa.fingerprintOf(key) }),
  verify: async ({ key, message, signature }) => ({ holds: await rsa.verify(rsa.readKey(key), unhex(message), unhex(signature)) }),
  /** Blind and Finalize of the RFC, with the salt and the inverse that its vectors give. */
  async vector({ key, message, salt, inv, signature }) {
    const [read, undone] = [rsa.readKey(key), BigInt(`0x${inv}`)];
    const factor = rsa.inverse(undone, read.n);
    return {
      blinded: hex(await rsa.blind(read, unhex(message), unhex(salt), factor)),
      signature: hex(await rsa.unblind(read, unhex(message), unhex(signature), undone)),
    };
  },
  /** Which of the given strings of bytes becomes the secret factor. */
  unit({ n, bytes }) {
    const number = BigInt(`0x${n}`);
    const bits = number.toString(2).length;
    const source = scripted(bytes);
    const { factor, undone } = rsa.unit({ n: number, bits, size: Math.ceil(bits / 8) }, source);
    return { factor: factor.toString(16), one: String((factor * undone) % number), asked: source.asked };
  },
  /** As on a page that was opened without https. */
  async insecure({ key, info }) {
    const whole = Object.getOwnPropertyDescriptor(globalThis, "crypto");
    const left = { getRandomValues: (bytes) => bytes.fill(7) };
    Object.defineProperty(globalThis, "crypto", { configurable: true, value: left });
    try {
      return await ballot.begin(key, info);
    } finally {
      Object.defineProperty(globalThis, "crypto", whole);
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { verb, ...told } = JSON.parse(line);
  let answer;
  try {
    answer = await verbs[verb](told);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    answer = { refused: error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
