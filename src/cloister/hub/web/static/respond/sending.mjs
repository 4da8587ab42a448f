// Reports on their way: the same ones are sent until the hub has them, and the receipt is kept.

import { recall, remember } from "./kept.mjs";
import { delivered } from "./line.mjs";
import { download, showBody } from "./showing.mjs";
import { count, say } from "./words.mjs";

const WAITS_S = [3, 10, 30, 60, 120];
const find = (id) => document.getElementById(id);
let timer = 0;

/** Send what waits, now and again; `sent(taken)` when it arrived, `unsent(key)` when it never will. */
export function resume(survey, sent, unsent, tries = 0) {
  const { name } = survey;
  const once = () => resume(survey, sent, unsent, tries + 1);
  clearTimeout(timer);
  removeEventListener("online", resume.once);
  find("again").onclick = once;
  find("said").textContent = say("device.sending");
  const waits = recall(name).outbox;
  if (!waits) return location.reload(); // another window has sent it
  return delivered(name, waits.body).then(({ receipt, refused, reason }) => {
    find("said").textContent = "";
    if (receipt) return sent(keepReceipt(name, waits, receipt));
    if (refused === "later") return wait(once, tries);
    find("waiting").hidden = true;
    // A ballot that was used is used; for another wave there will be another.
    remember(name, { outbox: null, ...(refused === "taken" ? { ballot: null } : {}) });
    if (refused === "taken") return unsent(survey.invited ? "device.used" : "device.closed");
    return unsent(reason === "wrong wave" ? "device.wrong_wave" : "device.unfit", { reason });
  });
}

function wait(once, tries) {
  const seconds = WAITS_S[Math.min(tries, WAITS_S.length - 1)];
  find("waiting-why").textContent = count("device.later", seconds);
  const first = find("waiting").hidden;
  find("waiting").hidden = false;
  if (first) find("waiting").focus();
  timer = setTimeout(once, seconds * 1000);
  resume.once = once;
  addEventListener("online", once, { once: true });
}

/** The invitation is done with: every wave has its own. */
function keepReceipt(name, { wave, body }, receipt) {
  const taken = { wave, body, receipt };
  remember(name, { outbox: null, ballot: null, invitation: null, taken: [...recall(name).taken, taken] });
  return taken;
}

/** The end: thanks, the receipt, what was sent. */
export function thank(taken, name, { quietly = false } = {}) {
  for (const id of ["asking", "review", "waiting"]) find(id).hidden = true;
  find("done").hidden = false;
  showBody(find("left"), taken.body);
  find("save-receipt").onclick = () => download(name, taken.wave, taken.receipt);
  find("said").textContent = quietly ? say("device.already") : "";
  if (!quietly) find("done-title").focus();
}
