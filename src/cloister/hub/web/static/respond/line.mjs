// How the page speaks to the hub: without cookies, without saying where it stands, and nothing is cached.

const QUIETLY = { credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store", redirect: "error" };
const PATIENCE_MS = 30_000;

/** What the hub answered: { status, body }; status 0 if there was no line, 500 and more if the hub could not. */
async function ask(path, body) {
  const headers = { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  const method = body === undefined ? "GET" : "POST";
  try {
    const answer = await fetch(path, { ...QUIETLY, method, headers, body, signal: AbortSignal.timeout(PATIENCE_MS) });
    return { status: answer.status, body: await answer.json() };
  } catch {
    return { status: 0, body: null };
  }
}

const at = (name, what) => `/s/${encodeURIComponent(name)}/${what}`;

/** What is asked, or null. */
export async function description(name) {
  const { status, body } = await ask(at(name, "survey.json"));
  return status === 200 ? body : null;
}

/** A blind signature: { signature }, or { refused: "later" | "link" | "closed" }. */
export async function signed(name, secret, blinded) {
  const { status, body } = await ask(at(name, "ballot"), JSON.stringify({ secret, blinded }));
  if (status === 200) return { signature: body.signature };
  return { refused: lost(status) ? "later" : status === 409 ? "closed" : "link" };
}

/** Reports on their way: { receipt }, or { refused: "later" | "taken" | "unfit", reason }. */
export async function delivered(name, text) {
  const { status, body } = await ask(at(name, "answers"), text);
  if (status === 200) return { receipt: body };
  if (lost(status)) return { refused: "later" };
  return { refused: status === 409 ? "taken" : "unfit", reason: body?.refused ?? "" };
}

// Too many at once (429) passes like a broken line.
const lost = (status) => status === 0 || status === 429 || status >= 500;
