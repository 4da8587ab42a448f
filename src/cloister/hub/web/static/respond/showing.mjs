// What the page shows of the wallet, of the reports and of receipts: lists made of words and numbers.

import { named } from "./asking.mjs";
import { recall, surveys } from "./kept.mjs";
import { NOTHING, exact, minus, plus } from "./purse.mjs";
import { reads } from "./reading.mjs";
import { count, element, loss, say } from "./words.mjs";

/** What a survey costs, what was spent and what stays: terms and numbers. */
export function showCosts(place, cost, wallet, cap) {
  const [limit, spent] = wallet ? [wallet.cap, wallet.spent] : [cap, NOTHING];
  const after = minus(minus(limit, spent), cost);
  const facts = [
    ["device.cost", loss(cost)],
    ["device.spent", loss(spent)],
    ["device.left", after.n < 0n ? say("device.too_much") : say("device.left_of", { left: loss(after), cap: loss(limit) })],
  ];
  place.replaceChildren(
    ...facts.map(([key, text]) => element("div", {}, element("dt", {}, say(key)), element("dd", {}, text))),
  );
}

/** The reports word by word, as they go over the line. */
export function showBody(place, body) {
  place.textContent = body;
}

/** Each question with its answer, which stays here, its level, and what a collector reads instead. */
export function showAnswers(place, asked, language) {
  const rows = asked.map(({ told, section, answer, envelope }) => {
    const text = element("strong", { lang: language }, told.text);
    if (answer.skipped) return element("li", {}, text, element("br"), say("device.skipped"));
    const how = say("device.answered", { answer: answer.shown, level: answer.name });
    const choices = reads(envelope);
    const names = choices?.map((choice) => named(section, told, choice)).join("; ") || say("device.reads_none");
    const instead = choices ? say("device.reads", { reads: names }) : say("device.reads_code");
    return element("li", {}, text, element("br"), how, element("br"), element("span", { class: "soft" }, instead));
  });
  place.replaceChildren(...rows);
}

/** What stays visible whatever the noise does. */
export function showVisible(place, survey, asked) {
  const skipped = asked.filter(({ answer }) => answer.skipped);
  const repeats = asked.filter(({ answer }) => !answer.skipped && !answer.question.levels[0].lifetime);
  const lines = [
    say(survey.invited ? "device.seen.invited" : "device.seen.part"),
    skipped.length ? count("device.seen.skipped", skipped.length) : say("device.seen.none_skipped"),
    say("device.seen.levels"),
    say("device.seen.address"),
  ];
  if (survey.invited) lines.push(say("device.seen.timing"));
  if (survey.lasting && repeats.length) lines.push(count("device.seen.repeats", repeats.length));
  place.replaceChildren(...lines.map((text) => element("li", {}, text)));
}

/** The wallet from within: what was spent on what, and receipts. */
export function showWallet(place, wallet) {
  if (wallet?.damaged) return place.replaceChildren(element("p", {}, say("device.damaged")));
  const parts = wallet ? [facts(wallet), charges(wallet)] : [element("p", {}, say("device.no_wallet"))];
  return place.replaceChildren(...parts, ...receipts());
}

function facts({ cap, spent, left }) {
  const rows = [["device.cap", cap], ["device.spent", spent], ["device.rest", left]];
  const made = rows.map(([key, value]) => element("div", {}, element("dt", {}, say(key)), element("dd", {}, loss(value))));
  return element("dl", { class: "facts" }, ...made);
}

function charges(wallet) {
  const sums = new Map();
  for (const { question, epsilon } of wallet.charges) sums.set(question, plus(sums.get(question) ?? NOTHING, exact(epsilon)));
  const rows = [...sums].map(([question, sum]) => {
    const [survey, name] = question.split(".");
    const title = recall(survey).title || survey;
    return element("tr", {}, element("td", {}, title), element("td", {}, name), element("td", { class: "number" }, loss(sum)));
  });
  const heads = ["device.survey", "device.question", "device.charged"].map((key) => element("th", { scope: "col" }, say(key)));
  const caption = element("caption", { class: "unseen" }, say("device.charges"));
  const table = element("table", {}, caption, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
  return element("div", { class: "table", role: "region", tabindex: "0", "aria-label": say("device.charges") }, table);
}

function receipts() {
  const rows = surveys().flatMap((name) => {
    const { title, taken } = recall(name);
    return taken.map((one) => receipt(name, title, one));
  });
  if (!rows.length) return [];
  return [element("h3", {}, say("device.receipts")), element("ul", { class: "plain-list" }, ...rows)];
}

function receipt(name, title, { wave, receipt: signed, body }) {
  const label = say("device.receipt_of", { title: title || name, wave });
  const button = element("button", { type: "button", class: "plain" }, say("device.download"));
  button.setAttribute("aria-label", `${say("device.download")}: ${label}`);
  button.addEventListener("click", () => download(name, wave, signed));
  const region = { class: "table", role: "region", tabindex: "0", "aria-label": say("device.was_sent") };
  const sent = element("details", {}, element("summary", {}, say("device.was_sent")), element("div", region, element("pre", {}, body)));
  return element("li", {}, element("p", {}, label), element("p", {}, button), sent);
}

/** A receipt as a file. */
export function download(name, wave, signed) {
  const address = URL.createObjectURL(new Blob([JSON.stringify(signed, null, 2)], { type: "application/json" }));
  element("a", { href: address, download: `receipt-${name}-${wave}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
