// Asked again, and the answer is another one: it is sent as before, which costs nothing and shows nothing, unless the person
// wants the new one sent.

import { earlier, familiar, look, price } from "./purse.mjs";
import { element, loss, say } from "./words.mjs";

/** An answer, marked if the wallet knows another one. */
export function asBefore(answer) {
  const wallet = look();
  if (answer.skipped || familiar(wallet, answer) !== "changed") return answer;
  const before = earlier(wallet, answer.question);
  // Where the earlier one cannot be sent any more, the new one is all there is; the page shows that it costs.
  return { ...answer, changed: true, anew: before === null, before };
}

/** The answer as it goes to the wallet. */
export function toSend(answer) {
  return answer.changed && !answer.anew ? { ...answer, ...answer.before } : answer;
}

/** For each that changed, two ways to go on; `decided` is called when one is taken. */
export function showChanges(place, asked, language, decided) {
  const changed = asked.filter(({ answer }) => answer.before);
  const made = changed.map((one) => choice(one, language, decided));
  place.replaceChildren(
    ...(made.length ? [element("div", { class: "notice warn" }, element("p", {}, say("device.change")), ...made)] : []),
  );
}

function choice({ told, answer }, language, decided) {
  function way(anew, words) {
    const id = `c-${told.id}-${anew ? "anew" : "before"}`;
    const input = element("input", { type: "radio", name: `c-${told.id}`, id, autocomplete: "off", checked: answer.anew === anew });
    input.addEventListener("change", async () => {
      answer.anew = anew;
      await decided();
      document.getElementById(id)?.focus(); // the list was made anew
    });
    return element("div", { class: "tick" }, input, element("label", { for: id }, words));
  }
  const cost = loss(price(answer.question, answer.level));
  const legend = element("legend", { lang: language }, told.text);
  return element("fieldset", {}, legend, way(false, say("device.change.before")), way(true, say("device.change.anew", { cost })));
}
