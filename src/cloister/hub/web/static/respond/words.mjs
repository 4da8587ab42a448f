// What the page says, in the reader's language: the server put the sentences on the page, from messages/*.json.

const main = document.querySelector("main");
const texts = JSON.parse(main.dataset.words);
const language = document.documentElement.lang;
const rules = new Intl.PluralRules(language);

/** A sentence, its places filled. A place without a value is a mistake, and fails. */
export function say(key, values = {}) {
  if (!Object.hasOwn(texts, key)) throw new Error(`no words for ${key}`);
  return texts[key].replace(/\{([a-z_]+)\}/g, (_, place) => {
    if (!Object.hasOwn(values, place)) throw new Error(`no ${place} for ${key}`);
    return String(values[place]);
  });
}

/** A sentence in the form that the language has for so many. */
export function count(key, n, values = {}) {
  return say(`${key}.${rules.select(n) === "one" ? "one" : "other"}`, { n: number(n), ...values });
}

export function number(value) {
  return new Intl.NumberFormat(language, { maximumFractionDigits: 4 }).format(value);
}

/** An exact epsilon, such as { n: 1n, d: 2n }, for people. */
export function loss({ n, d }) {
  return `ε\u00a0${number(Number(n) / Number(d))}`;
}

/** An element with attributes and children; text is text, never HTML. */
export function element(tag, facts = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
