// Invitations: a link ends in #SECRET.FINGERPRINT. With the secret the hub signs one ballot, blindly; reports go with the
// ballot, and without the secret. See surveys/ballots.py and /static/local/ballot.mjs.

import { begin, finish } from "/static/local/ballot.mjs";
import { fingerprintOf } from "/static/local/blind.mjs";
import { recall, remember } from "./kept.mjs";
import { signed } from "./line.mjs";

const LINK = /^#([A-Za-z0-9_-]{16,200})\.([0-9a-f]{64})$/;

/** Take an invitation off the address bar and keep it: nobody who looks over a shoulder or at a history finds it. */
export function takeInvitation(name) {
  const found = LINK.exec(location.hash);
  if (!found) return false;
  history.replaceState(null, "", location.pathname + location.search);
  const [, secret, mark] = found;
  // A ballot is of one invitation: another link makes another.
  if (recall(name).invitation?.secret !== secret) remember(name, { invitation: { secret, mark }, ballot: null });
  return true;
}

/** This wave's ballot: { ballot } or { refused: "none" | "key" | "insecure" | "later" | "link" | "closed" }.
 *
 * What hides it is kept before it is sent: a broken line is taken up again with the same one, since an invitation is
 * signed for once. When it is signed, what links it to the invitation is forgotten.
 */
export async function ballotFor(survey) {
  const { name, wave, ballots } = survey;
  let { invitation, ballot } = recall(name);
  if (ballot?.wave === wave && ballot.signature) return { ballot: paper(ballot) };
  if (!invitation) return { refused: "none" };
  if (!globalThis.crypto?.subtle) return { refused: "insecure" };
  if ((await fingerprintOf(ballots)) !== invitation.mark) return { refused: "key" };
  if (ballot?.wave !== wave) {
    const { state } = await begin(ballots, { survey: name, wave: String(wave), fingerprint: invitation.mark });
    ballot = remember(name, { ballot: { wave, state } }).ballot;
  }
  const answer = await signed(name, invitation.secret, ballot.state.blinded);
  if (answer.refused) return answer;
  ballot = { wave, ...(await finish(ballot.state, answer.signature)) };
  remember(name, { ballot });
  return { ballot: paper(ballot) };
}

const paper = ({ message, signature }) => ({ message, signature });
