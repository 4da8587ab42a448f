"""The device's half in JavaScript, for browsers and Node. `index.mjs` is the entry point; Python loads none of it."""
