// What leaves the device: canonical JSON around a report. See envelope.py; the bytes are the same.

import { Refusal, check } from "./exact.mjs";
import { open } from "./mechanism.mjs";
import { isSecret, systemSource } from "./random.mjs";

const VERSION = 1;
const ID_BYTES = 16;
const QUESTION = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** JSON with sorted keys, no spaces and ASCII only: one content has one spelling. */
export function canonical(value) {
  if (typeof value === "string") {
    return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
  }
  if (Number.isSafeInteger(value) || typeof value === "boolean") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") throw new Refusal("an envelope holds objects, lists, texts, whole numbers, true and false.");
  const fields = Object.keys(value).sort();
  return `{${fields.map((name) => `${canonical(name)}:${canonical(value[name])}`).join(",")}}`;
}

/** Base64 for addresses, without padding. */
export function base64url(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 3) {
    const left = Math.min(3, bytes.length - at);
    const three = (bytes[at] << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0);
    for (let place = 0; place <= left; place += 1) text += LETTERS[(three >> (18 - 6 * place)) & 63];
  }
  return text;
}

/** The id of a question, if it is one. */
export function checkQuestion(id) {
  check(typeof id === "string" && QUESTION.test(id), "a question's id has up to 64 letters, digits, dots, dashes and underscores.");
  return id;
}

/** A report and a random id, ready to be sent. The id is new for every report, so that it links nothing. */
export function seal(question, mechanism, report, source = systemSource, secret = isSecret(source)) {
  checkQuestion(question);
  return canonical({
    id: base64url(source.bytes(ID_BYTES)),
    level: mechanism.level,
    mechanism: mechanism.description,
    private: secret && isSecret(source),
    question,
    report: base64url(report),
    version: VERSION,
  });
}

/** Perturb an answer to a question at one of its levels, and seal the report: the text that may leave the device.
 *
 * `question` is what Python's `Question.describe()` writes. Random bytes are read for the report first, then for the id.
 */
export function answer(question, level, value, source = systemSource) {
  const mechanism = mechanismAt(question, level);
  const id = checkQuestion(question.id);
  const report = mechanism.perturb(value, source);
  return seal(id, mechanism, report, source);
}

/** The mechanism of a question's level, doubted like every description. */
export function mechanismAt(question, level) {
  check(question !== null && typeof question === "object" && Array.isArray(question.levels), "a question is a JSON object with levels.");
  const told = question.levels.find((one) => one !== null && typeof one === "object" && one.loss === level);
  check(told !== undefined, "the question is not asked at this level.");
  return open(told);
}
