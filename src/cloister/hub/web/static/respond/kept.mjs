// What this browser remembers of a survey, in local storage: the invitation, a ballot on its way, reports that wait to be
// sent, receipts. None of it is sent but what the page says; the wallet is kept by /static/local/wallet.mjs.

const PREFIX = "cloister-survey.";
const VERSION = 1;

/** What is remembered: { title, invitation, ballot, outbox, taken }. What cannot be read counts as nothing. */
export function recall(name) {
  const nothing = { version: VERSION, title: "", invitation: null, ballot: null, outbox: null, taken: [] };
  try {
    const kept = JSON.parse(localStorage.getItem(PREFIX + name));
    return kept?.version === VERSION && Array.isArray(kept.taken) ? { ...nothing, ...kept } : nothing;
  } catch {
    return nothing;
  }
}

/** Change what is remembered: read again just before, since another window may have written. */
export function remember(name, change) {
  const kept = { ...recall(name), ...change };
  localStorage.setItem(PREFIX + name, JSON.stringify(kept));
  return kept;
}

/** The names of all surveys that this browser took part in. */
export function surveys() {
  const keys = Array.from({ length: localStorage.length }, (_, place) => localStorage.key(place));
  return keys.filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length)).sort();
}

/** Whether a wave was answered from here. */
export function takenIn(kept, wave) {
  return kept.taken.find((one) => one.wave === wave);
}
