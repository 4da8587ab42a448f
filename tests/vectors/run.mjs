// Serves tests: one JSON case a line on stdin, one JSON line out. Started by node with the client's index.mjs as argument.

import { createInterface } from "node:readline";

const client = await import(process.argv[2]);
const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"));
const hex = (bytes) => Buffer.from(bytes).toString("hex");

const opened = new Map();
function open(told) {
  const key = JSON.stringify(told);
  if (!opened.has(key)) opened.set(key, client.open(told));
  return opened.get(key);
}

const verbs = {
  /** A report from given bytes, and how many of them it took. */
  report({ mechanism, value, bytes }) {
    const source = new client.ScriptedSource(unhex(bytes));
    const report = open(mechanism).perturb(value, source);
    return { report: hex(report), used: source.used };
  },
  /** Reports from given bytes, and how many were read; null for a report that needs more bytes than there are. */
  drive({ mechanism, scripts }) {
    const made = open(mechanism);
    const told = scripts.map(([value, text]) => {
      const source = new client.ScriptedSource(unhex(text));
      try {
        return [hex(made.perturb(value, source)), source.used];
      } catch (error) {
        if (!/used up/.test(error.message)) throw error;
        return [null, source.used];
      }
    });
    return { reports: told.map(([report]) => report), used: told.map(([, used]) => used) };
  },
  /** A permanent report, and a fresh one of it, from given bytes. */
  memory({ mechanism, value, bytes }) {
    const source = new client.ScriptedSource(unhex(bytes));
    const kept = open(mechanism).remember(value, source);
    return { kept: hex(kept), again: hex(open(mechanism).again(kept, source)) };
  },
  /** Many reports from one string of bytes, one person after the other. */
  reports({ mechanism, values, bytes }) {
    const [source, made] = [new client.ScriptedSource(unhex(bytes)), open(mechanism)];
    return { reports: values.map((value) => hex(made.perturb(value, source))) };
  },
  /** Many envelopes with the device's own randomness. */
  answers: ({ question, level, values }) => ({ envelopes: values.map((value) => client.answer(question, level, value)) }),
  answer({ question, level, value, bytes }) {
    return { envelope: client.answer(question, level, value, new client.ScriptedSource(unhex(bytes))) };
  },
  /** A wallet over a storage of its own: each step is an answer, and what it says of itself afterwards. */
  wallet({ cap, steps, held, full, polluted = [] }) {
    for (const name of polluted) Object.prototype[name] = () => true;
    const kept = new Map(held === undefined ? [] : [["cloister-wallet", held]]);
    const storage = { getItem: (name) => kept.get(name) ?? null, setItem: (name, text) => kept.set(name, text) };
    const told = [];
    for (const { question, level, value, bytes, anew } of [{}, ...steps]) {
      try {
        const wallet = new client.Wallet(storage, cap);
        if (full) storage.setItem = () => { throw new Error("quota"); };
        if (question === undefined) continue;
        const source = bytes === undefined ? client.systemSource : new client.ScriptedSource(unhex(bytes));
        const envelope = anew ? wallet.answerAnew(question, level, value, source) : wallet.answer(question, level, value, source);
        told.push({ envelope, spent: wallet.spent, left: wallet.left });
      } catch (error) {
        if (!(error instanceof client.Refusal)) throw error;
        told.push({ refused: error.message });
      }
    }
    for (const name of polluted) delete Object.prototype[name];
    return { told, held: kept.get("cloister-wallet") };
  },
  thresholds: ({ mechanism }) => ({
    thresholds: Object.fromEntries(Object.entries(open(mechanism).thresholds).map(([name, one]) => [name, String(one)])),
  }),
  canonical: ({ content }) => ({ text: client.canonical(content) }),
  known: () => ({ mechanisms: client.MECHANISMS }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { verb, ...told } = JSON.parse(line);
  let answer;
  try {
    answer = verbs[verb](told);
  } catch (error) {
    if (!(error instanceof client.Refusal)) throw error;
    answer = { refused: error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
