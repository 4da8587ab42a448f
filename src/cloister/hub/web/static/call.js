// How our own pages speak to the hub's API.

export const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";

/** Fetch from our own API; a refusal becomes an Error with the hub's sentence. */
export async function call(path, options = {}) {
  const headers = { Accept: "application/json", "X-CSRF": csrf, ...(options.headers ?? {}) };
  const answer = await fetch(path, { credentials: "same-origin", ...options, headers });
  const body = (answer.headers.get("content-type") ?? "").includes("json") ? await answer.json() : null;
  if (!answer.ok) throw Object.assign(new Error(body?.message ?? "The hub did not answer."), { status: answer.status, body });
  return body;
}
