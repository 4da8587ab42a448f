// A file goes in pieces, with a bar, and goes on where it was after an interruption.
import { call, csrf } from "./call.js";

const PIECE = 8 * 1024 * 1024;
const TRIES = 6;

const pause = (ms) => new Promise((done) => window.setTimeout(done, ms));

/** An upload of the same file that was interrupted, if the page lists one. */
function interrupted(table, file) {
  const rows = [...document.querySelectorAll("tr[data-upload]")];
  const row = rows.find(({ dataset }) => dataset.table === table && dataset.file === file.name && Number(dataset.size) === file.size);
  return row?.dataset.upload;
}

async function begun(form, table, file) {
  const known = interrupted(table, file);
  if (known) {
    const upload = await call(`/api/uploads/${known}`);
    if (upload.state === "open" || upload.state === "complete") return upload;
  }
  const body = JSON.stringify({ table, file: file.name, size: file.size });
  return call(form.dataset.uploads, { method: "POST", body, headers: { "Content-Type": "application/json" } });
}

async function send(form, file, show, stopped) {
  const table = form.elements.table.value.trim() || file.name.split(".")[0];
  const upload = await begun(form, table, file);
  let sent = upload.received;
  let failures = 0;
  while (sent < file.size && !stopped()) {
    show(sent / file.size);
    try {
      const piece = file.slice(sent, sent + PIECE);
      const headers = { "Content-Type": "application/octet-stream", "X-CSRF": csrf };
      const answer = await call(`/api/uploads/${upload.id}?offset=${sent}`, { method: "PUT", body: piece, headers });
      sent = answer.received;
      failures = 0;
    } catch (error) {
      failures += 1;
      const final = error.status && ![409, 429, 503].includes(error.status);
      if (final || failures >= TRIES) throw error;
      await pause(500 * 2 ** failures);
      try { sent = (await call(`/api/uploads/${upload.id}`)).received; } catch { /* try again with what we know */ }
    }
  }
  show(sent / file.size);
  return sent === file.size;
}

for (const form of document.querySelectorAll("form[data-uploads]")) {
  const [box, words, said, stop] = ["progress", "words", "said", "stop"].map((name) => form.querySelector(`[data-${name}]`));
  const bar = form.querySelector("progress");
  form.querySelector("[data-plain]")?.remove();
  let stopping = false;
  stop.addEventListener("click", () => { stopping = true; });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    const file = form.elements.file.files[0];
    if (!file || !box.hidden) return;
    stopping = false;
    box.hidden = stop.hidden = false;
    said.textContent = "";
    const show = (share) => {
      bar.value = share;
      words.textContent = `Sending ${file.name}: ${Math.floor(share * 100)} %`;
    };
    try {
      if (await send(form, file, show, () => stopping)) window.location.reload();
      else said.textContent = "Stopped. Choose the same file again to go on.";
    } catch (error) {
      said.textContent = error.message;
    } finally {
      box.hidden = stop.hidden = true;
    }
  }, { capture: true });
}

// A version that is being prepared: look again until it is ready.
const preparing = document.querySelector("tr[data-preparing]");
if (preparing) {
  const again = async () => {
    try {
      const version = await call(preparing.dataset.preparing);
      if (version.state !== "preparing") return window.location.reload();
    } catch { /* the next look may go better */ }
    window.setTimeout(again, 2000);
  };
  window.setTimeout(again, 1500);
}
