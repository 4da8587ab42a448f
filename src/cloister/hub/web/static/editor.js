// Completion in the SQL editor: tables, columns and functions. Without this file it is a plain text box.
//
// The keyboard stays where it is: arrows choose, Enter takes what is chosen, Tab takes the first, Escape closes.

const MOST = 12;
const KEYWORDS = [
  "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "AND", "OR", "NOT", "AS", "JOIN", "ON", "BETWEEN", "IN",
  "CASE WHEN", "THEN", "ELSE", "END", "IS NULL", "HAVING", "DESC", "ASC", "WITH",
];
const FUNCTIONS = [
  ["COUNT(*)", "rows"], ["COUNT(DISTINCT )", "different values"], ["SUM()", "total"], ["AVG()", "mean"],
  ["MEDIAN()", "middle value"], ["QUANTILE_CONT(, 0.9)", "quantile"], ["VARIANCE()", "spread"], ["STDDEV()", "spread"],
  ["MIN()", "smallest"], ["MAX()", "largest"], ["MODE()", "most frequent"], ["ROUND()", "rounded"],
  ["DATE_TRUNC('month', )", "month of a date"], ["EXTRACT(YEAR FROM )", "part of a date"], ["COALESCE(, 0)", "instead of NULL"],
];

class Editor {
  constructor(area) {
    this.area = area;
    const tables = JSON.parse(area.dataset.schema || "{}");
    this.words = [];
    for (const [table, columns] of Object.entries(tables)) {
      this.words.push({ text: table, about: "table" });
      for (const [column, about] of Object.entries(columns)) this.words.push({ text: column, about: `${table} · ${about}` });
    }
    for (const [text, about] of FUNCTIONS) this.words.push({ text, about });
    for (const text of KEYWORDS) this.words.push({ text, about: "" });

    this.list = document.createElement("ul");
    this.list.className = "offers";
    this.list.id = `${area.id}-offers`;
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Suggestions");
    this.list.hidden = true;
    this.voice = document.createElement("div");
    this.voice.className = "unseen";
    this.voice.setAttribute("role", "status");
    area.after(this.list, this.voice);
    area.setAttribute("aria-autocomplete", "list");
    area.setAttribute("aria-haspopup", "listbox");
    area.setAttribute("aria-controls", this.list.id);
    this.offers = [];
    this.chosen = -1;

    area.addEventListener("input", () => this.suggest(false));
    area.addEventListener("keydown", (event) => this.key(event));
    area.addEventListener("blur", () => window.setTimeout(() => this.close(), 150));
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault(); // the text box keeps the focus
      const item = event.target.closest("li");
      if (item) this.take(Number(item.dataset.place));
    });
  }

  get word() {
    const before = this.area.value.slice(0, this.area.selectionStart);
    return before.match(/[\p{L}_][\p{L}\p{N}_]*$/u)?.[0] ?? "";
  }

  suggest(asked) {
    const word = this.word.toLowerCase();
    if (!asked && word.length < 2) return this.close();
    const begins = this.words.filter((one) => one.text.toLowerCase().startsWith(word));
    const holds = word.length > 1 ? this.words.filter((one) => one.text.toLowerCase().includes(word) && !begins.includes(one)) : [];
    this.offers = [...begins, ...holds].slice(0, MOST);
    if (!this.offers.length || this.offers.some((one) => one.text.toLowerCase() === word)) return this.close();
    this.chosen = -1;
    this.draw();
  }

  draw() {
    this.list.replaceChildren(
      ...this.offers.map((one, place) => {
        const item = document.createElement("li");
        item.id = `${this.list.id}-${place}`;
        item.dataset.place = place;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", String(place === this.chosen));
        const text = document.createElement("span");
        text.textContent = one.text;
        const about = document.createElement("span");
        about.className = "about";
        about.textContent = one.about;
        item.append(text, about);
        return item;
      }),
    );
    this.list.hidden = false;
    this.place();
    const chosen = this.list.children[this.chosen];
    if (chosen) {
      this.area.setAttribute("aria-activedescendant", chosen.id);
      chosen.scrollIntoView({ block: "nearest" });
      this.voice.textContent = `${this.offers[this.chosen].text}, ${this.offers[this.chosen].about}`;
    } else {
      this.area.removeAttribute("aria-activedescendant");
      this.voice.textContent = `${this.offers.length} suggestions. Down arrow to choose, Tab for the first.`;
    }
  }

  place() {
    // The font has one width, so the caret's place follows from line and column.
    const style = window.getComputedStyle(this.area);
    const lines = this.area.value.slice(0, this.area.selectionStart).split("\n");
    const line = parseFloat(style.lineHeight) || 24;
    const top = this.area.offsetTop + parseFloat(style.paddingTop) + lines.length * line - this.area.scrollTop + 4;
    const width = parseFloat(style.fontSize) * 0.602;
    const left = this.area.offsetLeft + parseFloat(style.paddingLeft) + (lines.at(-1).length - this.word.length) * width;
    const most = this.area.offsetWidth - this.list.offsetWidth;
    this.list.style.top = `${Math.min(top, this.area.offsetTop + this.area.offsetHeight + 4)}px`;
    this.list.style.left = `${Math.max(0, Math.min(left, most))}px`;
  }

  key(event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
      event.preventDefault();
      this.area.form.requestSubmit();
    } else if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      this.suggest(true);
    } else if (this.list.hidden) {
      return;
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const count = this.offers.length;
      this.chosen = event.key === "ArrowDown" ? (this.chosen + 1) % count : (this.chosen <= 0 ? count : this.chosen) - 1;
      this.draw();
    } else if (event.key === "Enter" && this.chosen >= 0) {
      event.preventDefault();
      this.take(this.chosen);
    } else if (event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      this.take(Math.max(0, this.chosen));
    } else if (event.key === "Escape") {
      event.preventDefault();
      this.close();
    }
  }

  take(place) {
    const { text } = this.offers[place];
    const end = this.area.selectionStart;
    this.area.setRangeText(text, end - this.word.length, end, "end");
    // Into the first gap between brackets: COUNT(DISTINCT |), QUANTILE_CONT(|, 0.9).
    const gap = text.search(/(?<=\()(?=[),])|(?<= )(?=\))/);
    if (gap >= 0) {
      const caret = this.area.selectionStart - text.length + gap;
      this.area.setSelectionRange(caret, caret);
    }
    this.close();
    this.area.focus();
  }

  close() {
    this.list.hidden = true;
    this.chosen = -1;
    this.area.removeAttribute("aria-activedescendant");
    this.voice.textContent = "";
  }
}

for (const area of document.querySelectorAll("textarea[data-schema]")) new Editor(area);

// A column's name from the list beside the editor goes to where the caret is.
for (const button of document.querySelectorAll("button[data-insert]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const area = document.querySelector("textarea[data-schema]");
    area.setRangeText(button.dataset.insert, area.selectionStart, area.selectionEnd, "end");
    area.focus();
  });
}
