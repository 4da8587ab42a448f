// One invitation, one report, and nobody knows whose: a ballot that the hub signs without seeing it. See vault/ballot.py.
//
//   const { blinded, state } = await begin(publicKey, { survey: "sleep", wave: "1", fingerprint });
//   localStorage.setItem("ballot", JSON.stringify(state));      // before blinded is sent: an invitation is signed for once
//   …send blinded with the invitation; the answer is the blind signature…
//   const { message, signature } = await finish(state, answer); // goes with the report; now forget the state and the invitation
//
// The attack that no arithmetic stops: a hub that shows every person a different key knows each ballot by the key that
// signed it. So this device must use the key that everybody uses: `fingerprint` comes from the survey's public
// description, which others see too and which is printed in the invitation, never from where the key came from.
//
// What stays visible: that a ballot was asked for, when, and from which address. Who sends the report in the same minute
// from the same address is known by both; wait a while, or send it from elsewhere.

import { SALT_BYTES, blind, bytesOf, fingerprintOf, joined, numberOf, readKey, unbase64url, unblind, unit } from "./blind.mjs";
import { base64url } from "./envelope.mjs";
import { check } from "./exact.mjs";
import { systemSource } from "./random.mjs";

const VERSION = 1;
const [PREFIX_BYTES, NONCE_BYTES] = [32, 32];
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const FIELDS = "blinded,inverse,key,message,version";

/** Make a ballot and hide it.
 *
 * `blinded` goes to the hub. `state` is JSON and stays on this device until the signature comes, and no longer: it is what
 * links the two. If no answer came, send `state.blinded` again; the hub signs the same number as often as it is asked.
 */
export async function begin(publicKey, info) {
  check(info !== null && typeof info === "object", "a ballot is for a survey and a wave, and needs the key's fingerprint.");
  const { survey, wave, fingerprint } = info;
  for (const name of [survey, wave]) {
    check(
      typeof name === "string" && NAME.test(name),
      'a survey and a wave are named by up to 64 letters, digits, dots, dashes and underscores, as text: "1", not 1.',
    );
  }
  const key = readKey(publicKey);
  check(
    (await fingerprintOf(publicKey)) === fingerprint,
    "this is not the key that the survey's description names, and a key of one's own makes a ballot known. " +
      "Do not go on; show the invitation to whoever sent it.",
  );
  const text = `cloister ballot v1|${survey}|${wave}|${base64url(systemSource.bytes(NONCE_BYTES))}`;
  const message = joined(systemSource.bytes(PREFIX_BYTES), new TextEncoder().encode(text));
  const { factor, undone } = unit(key);
  const blinded = base64url(await blind(key, message, systemSource.bytes(SALT_BYTES), factor));
  const state = {
    version: VERSION,
    key: { ...publicKey },
    message: base64url(message),
    blinded,
    inverse: base64url(bytesOf(undone, key.size)),
  };
  return { blinded, state };
}

/** The ballot: its message and its signature, which was verified here. Forget the state afterwards. */
export async function finish(state, blindSignature) {
  check(
    state !== null && typeof state === "object" && Object.keys(state).sort().join() === FIELDS && state.version === VERSION,
    "this is no ballot that was kept, or another version kept it. Begin it again.",
  );
  const message = unbase64url(state.message, "message");
  const undone = numberOf(unbase64url(state.inverse, "inverse"));
  const signature = await unblind(readKey(state.key), message, unbase64url(blindSignature, "the signature"), undone);
  return { message: state.message, signature: base64url(signature) };
}
