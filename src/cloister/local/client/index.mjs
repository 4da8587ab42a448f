// Cloister's local client for browsers and Node: noise is drawn here, and only reports leave the device.
//
//   import { answer } from "./index.mjs";
//   const text = answer(question, "1", 3);          // question: the JSON of Python's Question.describe()
//   await fetch(address, { method: "POST", body: text });
//
//   exact.mjs      rationals over BigInt, e^epsilon rounded down
//   random.mjs     crypto.getRandomValues, or given bytes for conformance tests
//   coins.mjs      words against thresholds, bits by the byte
//   laplace.mjs    exact discrete Laplace noise  shake.mjs     a public hash
//   choice.mjs     yes or no, single choice      bits.mjs      single choice, one bit each
//   histogram.mjs  single choice, a noisy vector large.mjs     single choice among very many
//   sets.mjs       multiple choice               number.mjs    a number between bounds
//   memoised.mjs   asked again and again         envelope.mjs  what leaves the device
//   mechanism.mjs  a description, doubted        wallet.mjs    a cap for life, on the device
//
// No dependency, no network, no floats where a report is drawn. Made for evergreen browsers and Node 20.

export { answer, base64url, canonical, seal } from "./envelope.mjs";
export { Refusal } from "./exact.mjs";
export { MECHANISMS, open } from "./mechanism.mjs";
export { ScriptedSource, systemSource } from "./random.mjs";
export { Wallet } from "./wallet.mjs";
