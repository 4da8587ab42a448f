// A respondent's memory: what was answered before, what it cost, and a cap for a lifetime. See memory.py.
//
// It lives on the respondent's own device (localStorage, or anything with getItem and setItem) and holds their answers: it
// must know whether an answer changed. Two tabs at once: call it inside navigator.locks.request.

import { canonical, checkQuestion, mechanismAt, seal } from "./envelope.mjs";
import { Refusal, check, epsilonOf, fraction, ratio } from "./exact.mjs";
import { isSecret, systemSource } from "./random.mjs";

const VERSION = 1;
const DAMAGED = "the wallet is damaged or gone, so nothing is sent: what was told stays told.";
const show = ({ n, d }) => (d === 1n ? `${n}` : `${n}/${d}`);
const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
// Fields of its own only: whatever else runs on the page may have given every object more.
const own = (object, name, otherwise) => (Object.hasOwn(object, name) ? object[name] : otherwise);
const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (two) => Number.parseInt(two, 16));

export class Wallet {
  #storage;
  #name;

  /** Open a wallet, or make one with this cap, such as "4". An old one keeps the cap that it has. */
  constructor(storage, cap, name = "cloister-wallet") {
    [this.#storage, this.#name] = [storage, name];
    if (storage.getItem(name) === null) {
      epsilonOf(cap);
      this.#write({ version: VERSION, cap, charges: [], memos: {} });
    }
    check(cap === undefined || this.#read().cap === cap, "this wallet has another cap, and a cap is for life.");
  }

  /** The epsilon that was charged, as a fraction. */
  get spent() {
    return show(total(this.#read()));
  }

  /** The epsilon that is left. */
  get left() {
    return show(rest(this.#read()));
  }

  /** The envelope to send. The first answer is charged; the same answer again costs nothing; another one is refused. */
  answer(question, level, value, source = systemSource) {
    return this.#answer(question, level, value, source, false);
  }

  /** For an answer that may have changed: a new one is charged again, and that it changed may be seen. */
  answerAnew(question, level, value, source = systemSource) {
    return this.#answer(question, level, value, source, true);
  }

  #answer(question, level, value, source, anew) {
    const mechanism = mechanismAt(question, level);
    const id = checkQuestion(question.id); // before anything is charged: an envelope with another id is refused
    const facts = canonical({ mechanism: mechanism.description, value: mechanism.accept(value) });
    const state = this.#read();
    const memos = own(state.memos, id, []);
    let memo = memos.find((one) => one.facts === facts);
    if (memo === undefined) {
      check(anew || memos.length === 0, "this was answered before, with another answer or at another level; a second answer costs again.");
      this.#charge(state, id, own(mechanism, "lifetime", mechanism.level));
      const kept = own(mechanism, "remember", mechanism.perturb)(value, source);
      memo = { facts, report: hex(kept), private: isSecret(source) };
      state.memos[id] = [...memos, memo];
      this.#write(state);
    }
    const kept = unhex(memo.report);
    check(kept.length === mechanism.width, DAMAGED);
    const again = own(mechanism, "again", null);
    if (again === null) return seal(id, mechanism, kept, source, memo.private);
    return seal(id, mechanism, again(kept, source), source, memo.private && isSecret(source));
  }

  /** Written down before anything is drawn: a crash leaves the charge standing. */
  #charge(state, question, price) {
    const [left, asked] = [rest(state), fraction(price, "loss")];
    check(asked.n * left.d <= left.n * asked.d, `this needs epsilon ${price}, and ${show(left)} is left of ${state.cap}.`);
    state.charges.push({ question, epsilon: price });
    this.#write(state);
  }

  #read() {
    try {
      const state = JSON.parse(this.#storage.getItem(this.#name));
      if (state.version !== VERSION || Array.isArray(state.memos) || !Object.values(state.memos).every(areMemos)) throw new Refusal("");
      rest(state);
      return state;
    } catch {
      // Beginning again at zero would promise what was given away already.
      throw new Refusal(DAMAGED);
    }
  }

  #write(state) {
    try {
      this.#storage.setItem(this.#name, JSON.stringify(state));
    } catch {
      throw new Refusal("the wallet could not be written, so nothing is sent.");
    }
  }
}

function total(state) {
  return state.charges
    .map((charge) => epsilonOf(charge.epsilon))
    .reduce((sum, one) => ratio(sum.n * one.d + one.n * sum.d, sum.d * one.d), { n: 0n, d: 1n });
}

function rest(state) {
  const [cap, spent] = [epsilonOf(state.cap), total(state)];
  const left = cap.n * spent.d - spent.n * cap.d;
  check(left >= 0n, "more was spent than the cap allows.");
  return ratio(left, cap.d * spent.d);
}

function areMemos(kept) {
  const isMemo = (one) =>
    typeof own(one, "facts") === "string" && typeof own(one, "private") === "boolean" && /^([0-9a-f]{2})*$/.test(own(one, "report"));
  return Array.isArray(kept) && kept.every(isMemo);
}
