// What needs mending before reports are drawn: said beside each question, and as a list of ways there.

import { blame } from "./asking.mjs";
import { element, say } from "./words.mjs";

const find = (id) => document.getElementById(id);

/** List items that lead to what is wrong; none if nothing is. */
export function wrongs(asked) {
  const wrong = [];
  for (const { told, section, answer } of asked) {
    const words = answer.wrong ? say(answer.wrong, { most: told.most ?? "", low: told.low ?? "", high: told.high ?? "" }) : "";
    blame(section, words);
    if (words) wrong.push(pointer(answer.input, `${told.text}: ${words}`));
  }
  const agreed = find("agree").checked;
  const place = find("agree-error");
  place.textContent = agreed ? "" : say("device.wrong.agree");
  place.hidden = agreed;
  if (!agreed) wrong.push(pointer(find("agree"), say("device.wrong.agree")));
  const first = asked[0].section.querySelector("input, select");
  if (asked.every(({ answer }) => answer.skipped)) wrong.push(pointer(first, say("device.wrong.nothing")));
  return wrong;
}

function pointer(input, words) {
  const link = element("a", { href: `#${input.id}` }, words);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    input.focus();
  });
  return element("li", {}, link);
}
