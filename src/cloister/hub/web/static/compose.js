// What error to expect of a question, while it is written. Without this file a button asks for the same.

import { call } from "./call.js";

const form = document.getElementById("question");
const box = document.getElementById("advice");
const people = document.getElementById("people");
const FIELDS = ["type", "text", "options", "most", "low", "high", "step", "unit", "levels", "mechanism"];

const part = (name) => box.querySelector(`[data-${name}]`);
const plain = (name) => name.replaceAll("-", " ");

function question() {
  const sent = new FormData(form);
  const told = { id: "q" };
  for (const name of FIELDS) {
    const value = (sent.get(name) ?? "").trim();
    if (value) told[name] = value;
  }
  told.text ??= "?"; // its words change nothing about its error
  return told;
}

function cell(tag, text, kind = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

function show(levels) {
  part("levels").replaceChildren(
    ...levels.map((one) => {
      const name = cell("th", `${one.level} `);
      name.scope = "row";
      name.append(cell("span", `ε ${one.epsilon_text}`, "soft"));
      return row(name, cell("td", one.margin_text, "number"), cell("td", plain(one.mechanism)));
    }),
  );
  part("table").replaceChildren(
    ...levels.flatMap((one) =>
      one.candidates.map((other) =>
        row(
          cell("td", one.level),
          cell("td", plain(other.mechanism)),
          cell("td", other.error.toPrecision(4), "number"),
          cell("td", other.bits.toLocaleString("en-GB"), "number"),
        ),
      ),
    ),
  );
  part("candidates").hidden = false;
  const needed = levels.filter((one) => one.needed);
  const words = needed.map((one) => `${one.needed.toLocaleString("en-GB")} people at ${one.level}`).join(", ");
  part("needed").textContent = words ? `For an error of ± 3 points: ${words}.` : "";
}

let newest = 0;

async function ask() {
  const mine = ++newest;
  const n = Number.parseInt(people.value, 10);
  if (!form.elements.options?.value.trim() && form.elements.options) return; // not begun yet
  if ([form.elements.low, form.elements.high].some((one) => one && !one.value.trim())) return;
  const body = JSON.stringify({ question: question(), people: n, lasting: Boolean(form.dataset.lasting) });
  try {
    // A question that is half written is no error of the page: the hub says what is missing with a status of 200.
    const told = await call("/api/surveys/advice", { method: "POST", body, headers: { "Content-Type": "application/json" } });
    if (mine !== newest) return;
    part("problem").hidden = !told.problem;
    part("problem").textContent = told.problem ?? "";
    if (!told.problem) show(told.levels);
  } catch (problem) {
    if (mine !== newest) return;
    part("problem").hidden = false;
    part("problem").textContent = problem.message;
  }
}

let waiting = 0;

function later() {
  window.clearTimeout(waiting);
  waiting = window.setTimeout(ask, 250);
}

people.disabled = false;
form.querySelector("[data-look]").hidden = true;
form.addEventListener("input", (event) => {
  if (FIELDS.includes(event.target.name) && event.target.name !== "text") later();
});
people.addEventListener("input", later);
ask();
