// The wallet as this page uses it: what is left, what answers would cost, and reports drawn on a copy.
//
// Reports are drawn before they are shown, and the wallet is charged before they leave. Whoever looks at them and goes back
// has told nobody anything, so they are drawn on a copy of the wallet, which replaces it when they are sent. Who comes back
// with the same answer meets the same report: drawing until one likes it would not be noise.

import { fraction, ratio } from "/static/local/exact.mjs";
import { Refusal, Wallet, canonical, open } from "/static/local/index.mjs";

const NAME = "cloister-wallet";
const opened = new Map();
const pool = new Map(); // reports that were drawn on this page and not sent, by question and what they are about

export const NOTHING = ratio(0n, 1n);
export const plus = (one, other) => ratio(one.n * other.d + other.n * one.d, one.d * other.d);
export const minus = (one, other) => ({ n: one.n * other.d - other.n * one.d, d: one.d * other.d });
export const exact = (text) => fraction(text, "epsilon");

/** One window at a time, where the browser can. */
export function alone(work) {
  return navigator.locks ? navigator.locks.request(NAME, work) : work();
}

/** The wallet: null if there is none yet, { damaged: true }, or what it holds. */
export function look() {
  if (localStorage.getItem(NAME) === null) return null;
  try {
    const wallet = new Wallet(localStorage);
    const { cap, charges, memos } = JSON.parse(localStorage.getItem(NAME));
    return { cap: exact(cap), spent: exact(wallet.spent), left: exact(wallet.left), charges, memos };
  } catch (error) {
    if (error instanceof Refusal) return { damaged: true };
    throw error;
  }
}

/** The mechanism of a level, doubted by this device. */
function mechanism(question, level) {
  const key = `${question.id} ${level}`;
  if (!opened.has(key)) opened.set(key, open(question.levels.find((one) => one.loss === level)));
  return opened.get(key);
}

/** What an answer costs if it is new: for life, where it is memoised. */
export function price(question, level) {
  const made = mechanism(question, level);
  return exact(made.lifetime ?? made.level);
}

/** What a report is about, as the wallet writes it down. */
function factsOf({ question, level, value }) {
  const made = mechanism(question, level);
  return canonical({ mechanism: made.description, value: made.accept(value) });
}

/** Whether the wallet knows this answer: "new", "same", or "changed" if it knows another. */
export function familiar(wallet, answer) {
  const memos = wallet?.memos?.[answer.question.id] ?? [];
  if (!memos.length) return "new";
  const facts = factsOf(answer);
  return memos.some((one) => one.facts === facts) ? "same" : "changed";
}

/** What was answered last: { level, value } as it can be answered again, or null. */
export function earlier(wallet, question) {
  const memo = wallet?.memos?.[question.id]?.at(-1);
  if (!memo) return null;
  const { mechanism: told, value } = JSON.parse(memo.facts);
  if (!question.levels.some((one) => one.loss === told.loss)) return null;
  if (!Object.hasOwn(told, "steps")) return { level: told.loss, value };
  const [low, high] = [told.low, told.high].map((text) => {
    const [n, d] = text.split("/");
    return Number(n) / Number(d ?? "1");
  });
  return { level: told.loss, value: low + (value * (high - low)) / told.steps };
}

/** Reports on these answers, drawn on a copy: { envelopes, base, text }. A Refusal says why not. */
export function draw(answers, cap) {
  const base = localStorage.getItem(NAME);
  const copy = new Map(base === null ? [] : [[NAME, base]]);
  const storage = { getItem: (name) => copy.get(name) ?? null, setItem: (name, text) => copy.set(name, text) };
  const wallet = base === null ? new Wallet(storage, cap) : new Wallet(storage);
  const envelopes = answers.map((one) => {
    const known = memosOf(storage, one.question.id).length;
    const envelope = (one.anew ? wallet.answerAnew : wallet.answer).call(wallet, one.question, one.level, one.value);
    return settled(storage, one, memosOf(storage, one.question.id).length > known, envelope);
  });
  return { envelopes, base, text: storage.getItem(NAME) };
}

const memosOf = (storage, id) => JSON.parse(storage.getItem(NAME)).memos[id] ?? [];

/** The envelope that this page drew first about the same answer, with what was kept of it; or else this one. */
function settled(storage, answer, fresh, envelope) {
  const [{ id }, facts] = [answer.question, factsOf(answer)];
  const state = JSON.parse(storage.getItem(NAME));
  const place = state.memos[id].findIndex((one) => one.facts === facts);
  const first = pool.get(`${id} ${facts}`);
  if (first && fresh) {
    state.memos[id][place] = first.memo;
    storage.setItem(NAME, JSON.stringify(state));
  }
  // What another window has kept meanwhile counts more than what was only looked at here.
  if (first && first.memo.report === state.memos[id][place].report) return first.envelope;
  pool.set(`${id} ${facts}`, { memo: state.memos[id][place], envelope });
  return envelope;
}

/** Make the copy the wallet, unless another window was faster: whether it is. */
export function commit({ base, text }) {
  if (localStorage.getItem(NAME) !== base) return false;
  localStorage.setItem(NAME, text);
  return true;
}
