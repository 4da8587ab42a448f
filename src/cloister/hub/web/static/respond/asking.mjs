// A question on the page: what was answered, at which level, read off the inputs; and put back into them.

const DAY_MS = 86_400_000;

/** The name of the period a day lies in, as surveys/asked.py names it. */
export function period(day, step) {
  if (step === "week") {
    const moment = Date.parse(`${day}T00:00:00Z`);
    const sinceMonday = (new Date(moment).getUTCDay() + 6) % 7;
    return new Date(moment - sinceMonday * DAY_MS).toISOString().slice(0, 10);
  }
  if (step === "quarter") return `${day.slice(0, 4)}-Q${Math.ceil(Number(day.slice(5, 7)) / 3)}`;
  return day.slice(0, { year: 4, month: 7, day: 10 }[step]);
}

const inputs = (section) => [...section.querySelectorAll(".answer input, .answer select")];
const ticked = (section) => inputs(section).filter((one) => one.checked);
const labelled = (input) => input.labels[0].textContent.trim();

/** For each type: the answer as mechanisms take it; undefined if there is none; a text if something is wrong with it. */
const READ = {
  yes_no: (section) => position(ticked(section)[0]),
  scale: (section) => position(ticked(section)[0]),
  choice(section) {
    const [first] = inputs(section);
    return position(first.type === "radio" ? ticked(section)[0] : first);
  },
  choices(section, told) {
    const chosen = ticked(section);
    if (!chosen.length) return undefined;
    const places = chosen.filter((one) => one.value !== "none").map(position);
    if (places.length > told.most) return "device.wrong.most";
    return places.length && places.length < chosen.length ? "device.wrong.none" : places;
  },
  date(section, told) {
    const [input] = inputs(section);
    if (input.validity.badInput) return "device.wrong.date";
    if (!input.value) return undefined;
    const place = told.choices.indexOf(period(input.value, told.step));
    return place < 0 ? "device.wrong.outside" : place;
  },
  number(section) {
    const [input] = inputs(section);
    if (input.validity.badInput) return "device.wrong.number";
    return input.value === "" ? undefined : Number(input.value);
  },
};

const position = (input) => (input === undefined || input.value === "" ? undefined : Number(input.value));

/** What is answered: { skipped } or { wrong, input } or { level, value, shown }. What has no answer is skipped. */
export function read(section, told) {
  const picked = section.querySelector(".levels input:checked");
  const value = READ[told.type](section, told);
  if (picked.value === "" || value === undefined) return { skipped: true };
  if (typeof value === "string") return { wrong: value, input: inputs(section)[0] };
  const [first] = inputs(section);
  const chosen = first.tagName === "SELECT" ? [first.selectedOptions[0].textContent] : ticked(section).map(labelled);
  const shown = chosen.length ? chosen.join("; ") : first.value;
  return { question: told.question, level: picked.value, name: picked.dataset.name, value, shown };
}

/** The name of a choice, as the page shows it. */
export function named(section, told, place) {
  const input = inputs(section).find((one) => one.value === String(place) && one.type !== "number");
  return input ? labelled(input) : told.choices[place];
}

/** Put an earlier answer back, { level, value } as the wallet remembers it. */
export function put(section, told, { level, value }) {
  for (const one of section.querySelectorAll(".levels input")) one.checked = one.value === level;
  const [first] = inputs(section);
  if (told.type === "number") first.value = String(Number(value.toPrecision(6)));
  else if (told.type === "date") first.value = dayOf(told, value);
  else if (first.tagName === "SELECT") first.value = String(value);
  else {
    const places = told.type !== "choices" ? [String(value)] : value.length ? value.map(String) : ["none"];
    for (const one of inputs(section)) one.checked = places.includes(one.value);
  }
  explain(section);
}

/** Some day of a period, inside the bounds. */
function dayOf(told, place) {
  const name = told.choices[place];
  const quarter = /-Q(\d)$/.exec(name);
  const month = quarter ? `-${String(3 * Number(quarter[1]) - 2).padStart(2, "0")}` : "";
  const day = `${name.replace(/-Q\d$/, month)}-01-01`.slice(0, 10);
  return day < told.low ? told.low : day;
}

/** Show what the chosen level tells, and no other. */
export function explain(section) {
  for (const one of section.querySelectorAll(".levels input")) {
    document.getElementById(one.getAttribute("aria-describedby")).hidden = !one.checked;
  }
}

/** None of these, or some of these. */
export function settle(section, input) {
  if (section.dataset.type !== "choices" || !input.checked || !input.closest(".answer")) return;
  for (const one of inputs(section)) if ((one.value === "none") !== (input.value === "none")) one.checked = false;
}

/** Say what is wrong beside the question, or nothing. */
export function blame(section, words) {
  const place = section.querySelector(".answer > .error");
  place.textContent = words;
  place.hidden = !words;
  section.classList.toggle("wrong", Boolean(words));
  for (const one of inputs(section)) {
    if (words) one.setAttribute("aria-invalid", "true");
    else one.removeAttribute("aria-invalid");
  }
}
