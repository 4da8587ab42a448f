// The respondent's page. Answers are read off the inputs, noise is drawn by /static/local, and only reports leave.
//
//   words.mjs       what is said           asking.mjs      inputs to answers
//   purse.mjs       the wallet, on a copy  showing.mjs     lists and numbers
//   invitation.mjs  links and ballots      sending.mjs     on the line, again and again if it breaks
//   kept.mjs        local storage          line.mjs        fetch, quietly
//   changing.mjs    answers that changed   checking.mjs    answers that need mending
//   reading.mjs     what a report says to whoever gets it

import { Refusal } from "/static/local/index.mjs";
import { blame, explain, put, read, settle } from "./asking.mjs";
import { asBefore, showChanges, toSend } from "./changing.mjs";
import { wrongs } from "./checking.mjs";
import { ballotFor, takeInvitation } from "./invitation.mjs";
import { recall, remember, takenIn } from "./kept.mjs";
import { description } from "./line.mjs";
import { NOTHING, alone, commit, draw, earlier, exact, familiar, look, minus, plus, price } from "./purse.mjs";
import { resume, thank } from "./sending.mjs";
import { showAnswers, showBody, showCosts, showVisible, showWallet } from "./showing.mjs";
import { element, loss, say } from "./words.mjs";

const find = (id) => document.getElementById(id);
const { survey: name } = find("content").dataset;
let survey;
let prepared = null; // { asked, drawn, ballot }: what the page shows before it is sent

const sections = () => survey.questions.map((told) => ({ told, section: find(`q-${told.id}`) }));
const capNow = () => document.querySelector("#cap input:checked").value;

/** Words about trouble, where the focus goes; none hides them. */
function trouble(...parts) {
  const place = find("problem");
  place.replaceChildren(...parts.map((one) => (typeof one === "string" ? element("p", {}, one) : one)));
  place.hidden = !parts.length;
  if (parts.length) place.focus();
}

async function begin() {
  find("no-script").remove();
  if (!canKeep()) return trouble(say("device.no_storage"));
  takeInvitation(name);
  addEventListener("hashchange", () => takeInvitation(name) && location.reload());
  find("place").replaceChildren(find("sheet").content.cloneNode(true));
  find("asking").hidden = true;
  refresh();
  survey = await description(name);
  if (!survey) return trouble(say("device.no_line"), again(() => location.reload()));
  const kept = remember(name, { title: survey.title });
  const doubt = doubted();
  if (doubt) return refused(doubt);
  listen();
  if (takenIn(kept, survey.wave)) return thank(takenIn(kept, survey.wave), name, { quietly: true });
  if (kept.outbox) return resume(survey, sent, unsent);
  return ask();
}

/** Why this device would not draw such noise, before anybody is asked anything. */
function doubted() {
  try {
    for (const { question } of survey.questions) for (const { loss: level } of question.levels) price(question, level);
    // What the page says that a level costs is what the mechanism costs.
    for (const { told, section } of sections()) {
      for (const { value: level, dataset } of section.querySelectorAll(".levels input")) {
        if (level && minus(price(told.question, level), exact(dataset.price)).n !== 0n) {
          throw new Refusal("the page names another price than the mechanism has.");
        }
      }
    }
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
  return null;
}

const refused = (error) => trouble(say("device.refused"), element("p", { lang: "en", class: "soft" }, error.message));

/** A wallet needs a place. */
function canKeep() {
  try {
    return Boolean(localStorage);
  } catch {
    return false;
  }
}

const again = (work) => element("p", {}, element("button", { type: "button", class: "plain", onclick: work }, say("device.again")));

function ask() {
  if (!survey.open) return;
  const kept = recall(name);
  if (survey.invited && !kept.invitation && kept.ballot?.wave !== survey.wave) return trouble(say("device.no_invitation"));
  if (look()?.damaged) return trouble(say("device.damaged"));
  find("asking").hidden = false;
  find("before").hidden = !survey.questions.some((told) => earlier(look(), told.question));
  costs();
}

function listen() {
  for (const { told, section } of sections()) {
    section.addEventListener("change", (event) => {
      settle(section, event.target);
      explain(section);
      blame(section, "");
      costs();
    });
    section.addEventListener("input", costs);
    explain(section);
  }
  find("cap").addEventListener("change", costs);
  find("refill").addEventListener("click", refill);
  find("go-on").addEventListener("click", goOn);
  find("back").addEventListener("click", back);
  find("send").addEventListener("click", send);
  // Another window may have spent something.
  addEventListener("storage", refresh);
}

/** Numbers that may have changed. */
function refresh() {
  const wallet = look();
  find("cap").hidden = wallet !== null;
  showWallet(find("wallet-inside"), wallet);
  if (survey && !find("asking").hidden) costs();
}

/** What these answers cost now: nothing for those that the wallet knows, nor for changed ones that are sent as before. */
function costOf(answers, wallet) {
  const fresh = answers.filter((one) => familiar(wallet, one) === "new" || (one.anew && familiar(wallet, one) === "changed"));
  return fresh.reduce((sum, one) => plus(sum, price(one.question, one.level)), NOTHING);
}

function costs() {
  const wallet = look();
  if (wallet?.damaged) return;
  const answers = sections().map(({ told, section }) => ({ ...read(section, told), anew: true }));
  const whole = answers.filter((one) => !one.skipped && !one.wrong);
  showCosts(find("costs"), costOf(whole, wallet), wallet, exact(capNow()));
}

function refill() {
  const wallet = look();
  for (const { told, section } of sections()) {
    const known = earlier(wallet, told.question);
    if (known) put(section, told, known);
  }
  costs();
  find("said").textContent = say("device.refilled");
}

/** From answers to reports that can be looked at; nothing has left yet but, where people are invited, a blinded ballot. */
async function goOn() {
  trouble();
  const asked = sections().map(({ told, section }) => ({ told, section, answer: read(section, told) }));
  const wrong = wrongs(asked);
  if (wrong.length) return trouble(say("device.mend"), element("ul", {}, ...wrong));
  for (const one of asked) one.answer = asBefore(one.answer);
  return prepare(asked);
}

async function prepare(asked) {
  const wallet = look();
  if (wallet?.damaged) return trouble(say("device.damaged"));
  const answers = asked.map(({ answer }) => answer).filter((one) => !one.skipped);
  const cost = costOf(answers, wallet);
  const left = wallet ? wallet.left : exact(capNow());
  if (minus(left, cost).n < 0n) {
    const cap = wallet ? wallet.cap : exact(capNow());
    return trouble(say("device.beyond", { need: loss(cost), left: loss(left), cap: loss(cap) }));
  }
  let ballot;
  if (survey.invited) {
    const answer = await alone(() => ballotFor(survey));
    if (answer.refused) return trouble(say(`device.ballot.${answer.refused}`));
    ballot = answer.ballot;
  }
  try {
    const drawn = draw(answers.map(toSend), capNow());
    const body = JSON.stringify({ version: 1, wave: survey.wave, reports: drawn.envelopes, ...(ballot ? { ballot } : {}) });
    const sent = asked.filter(({ answer }) => !answer.skipped);
    for (const [place, one] of sent.entries()) one.envelope = drawn.envelopes[place];
    prepared = { asked, drawn, body };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return refused(error);
  }
  return review(cost, wallet);
}

function review(cost, wallet) {
  const { asked, body } = prepared;
  showChanges(find("changed"), asked, survey.language, () => prepare(asked));
  showAnswers(find("yours"), asked, survey.language);
  showVisible(find("visible"), survey, asked);
  showCosts(find("final"), cost, wallet, exact(capNow()));
  showBody(find("leaves"), body);
  const coming = find("review").hidden;
  find("asking").hidden = true;
  find("review").hidden = false;
  if (coming) find("review-title").focus();
}

function back() {
  prepared = null;
  find("review").hidden = true;
  find("asking").hidden = false;
  costs();
  find("go-on").focus();
}

/** The wallet is charged and the reports are kept; then they go. From here on the same reports are sent until they arrive. */
async function send() {
  trouble();
  find("send").disabled = true;
  const kept = await alone(keep);
  find("send").disabled = false;
  refresh();
  if (kept === "full") return trouble(say("device.no_storage"));
  if (kept === "elsewhere") return location.reload();
  if (kept === "stale") {
    back();
    return trouble(say("device.stale"));
  }
  find("review").hidden = true;
  return resume(survey, sent, unsent);
}

function keep() {
  const { outbox, taken } = recall(name);
  if (outbox || taken.some((one) => one.wave === survey.wave)) return "elsewhere";
  try {
    if (!commit(prepared.drawn)) return "stale";
    remember(name, { outbox: { wave: survey.wave, body: prepared.body } });
    return "kept";
  } catch {
    return "full"; // if the wallet was written, the same answers cost nothing next time
  }
}

function sent(taken) {
  refresh();
  thank(taken, name);
}

/** The hub does not want these reports, and never will. */
async function unsent(key, values) {
  survey = (await description(name)) ?? survey;
  ask();
  trouble(say(survey.open ? key : "device.closed", values));
}

begin();
