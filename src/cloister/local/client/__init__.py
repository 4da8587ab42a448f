"""The device's half in JavaScript, for browsers and Node. `index.mjs` is the door; nothing else in it is loaded."""
