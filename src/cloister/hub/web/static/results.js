// Results that follow along while a survey is open. Only what changed is exchanged, when its pictures have arrived.

import { call } from "./call.js";

const box = document.querySelector("[data-live-survey]");
const status = document.querySelector("[data-status]");
const sleep = (ms) => new Promise((resolve) => window.setTimeout(resolve, ms));

/** A part of the new page, with its pictures loaded and what was unfolded before unfolded again. */
async function ready(old, fresh) {
  // Made in this document, not imported into it: a picture chooses its size and theme by the page it was made in.
  const made = old.cloneNode(false);
  made.innerHTML = fresh.innerHTML;
  const folds = [...old.querySelectorAll("details")];
  made.querySelectorAll("details").forEach((one, place) => (one.open = folds[place]?.open ?? false));
  await Promise.allSettled([...made.querySelectorAll("img")].map((image) => image.decode()));
  return made;
}

async function exchange() {
  const answer = await fetch(window.location.pathname + window.location.search, { credentials: "same-origin" });
  if (!answer.ok || answer.redirected) return window.location.reload(); // signed out, perhaps: the page says so
  let later = false;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const old of box.querySelectorAll("[data-live]")) {
    const next = fresh.querySelector(`[data-live="${old.dataset.live}"]`);
    if (!next || next.outerHTML === old.outerHTML) continue;
    if (old.contains(document.activeElement)) later = true; // somebody reads here with the keyboard: another time
    else old.replaceWith(await ready(old, next));
  }
  status.firstChild.textContent = fresh.querySelector("[data-status]")?.firstChild.textContent ?? "";
  const pending = fresh.querySelector("[data-pending]");
  box.toggleAttribute("data-pending", Boolean(pending));
  if (!later) box.dataset.people = fresh.querySelector("[data-live-survey]")?.dataset.people ?? box.dataset.people;
  return Boolean(fresh.querySelector("[data-live-survey]"));
}

async function follow() {
  for (let wait = 4000; ; ) {
    await sleep("pending" in box.dataset ? 2000 : wait);
    if (document.hidden) continue;
    try {
      const began = performance.now();
      const survey = await call(`/api/surveys/${box.dataset.liveSurvey}`);
      const changed = String(survey.people) !== box.dataset.people || "pending" in box.dataset || !survey.open;
      if (changed && !(await exchange())) return; // it is closed, and nothing more will come
      wait = Math.max(4000, 5 * (performance.now() - began));
    } catch (problem) {
      if (problem.status === 401 || problem.status === 404) return window.location.reload();
      wait = Math.min(wait * 2, 60000);
    }
  }
}

if (box) follow();
