// Small comforts for every page; each page works without them.

// Times in the reader's own zone; the text the server wrote stays as the title.
for (const time of document.querySelectorAll("time[datetime]")) {
  const moment = new Date(time.getAttribute("datetime"));
  if (Number.isNaN(moment.getTime())) continue;
  time.title = time.textContent;
  time.textContent = moment.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

// A post that cannot be taken back is asked about first.
for (const form of document.querySelectorAll("form[data-ask]")) {
  form.addEventListener("submit", (event) => {
    if (!window.confirm(form.dataset.ask)) event.preventDefault();
  });
}

// Two clicks are one post.
for (const form of document.querySelectorAll('form[method="post"]')) {
  form.addEventListener("submit", (event) => {
    if (event.defaultPrevented) return;
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
    window.setTimeout(() => delete form.dataset.sent, 4000);
  });
}

// The menu on a phone closes with Escape.
const menu = document.querySelector("details.menu");
menu?.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !menu.open) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

// Copy what a button names, such as a token that is shown once.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    button.textContent = "Copied";
  });
}

// What went wrong comes first for anyone who listens to the page.
document.getElementById("problem")?.focus();
