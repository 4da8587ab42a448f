// Exact rationals over BigInt: probabilities as the description spells them, and e^epsilon rounded down.

export const WORD = 1n << 64n;
const LONGEST = 400; // digits; longer numbers help nobody and cost everybody
const SCALE = 512n; // binary places of e^epsilon
const LARGEST_EPSILON = 30n; // as in Python: beyond it an answer is hardly protected

/** What this client says instead of making a report. The message never contains an answer. */
export class Refusal extends Error {
  constructor(message) {
    super(message);
    this.name = "Refusal";
  }
}

export function check(holds, message) {
  if (!holds) throw new Refusal(message);
}

function gcd(a, b) {
  while (b) [a, b] = [b, a % b];
  return a;
}

/** A positive rational in lowest terms. */
export function ratio(n, d) {
  const common = gcd(n, d);
  return Object.freeze({ n: n / common, d: d / common });
}

/** "3/4" or "2", as Python's Fraction prints itself. */
export function fraction(text, name) {
  const parts = typeof text === "string" && text.length <= LONGEST ? /^(\d+)(?:\/(\d+))?$/.exec(text) : null;
  check(parts, `${name} must be a fraction such as "3/4".`);
  const [n, d] = [BigInt(parts[1]), BigInt(parts[2] ?? "1")];
  check(d > 0n, `${name} must be a fraction such as "3/4".`);
  return ratio(n, d);
}

/** A probability strictly between 0 and 1 that a 64-bit word can toss exactly. */
export function probability(text, name) {
  const read = fraction(text, name);
  check(read.n > 0n && read.n < read.d, `${name} must lie strictly between 0 and 1.`);
  check(WORD % read.d === 0n, `${name} must be a multiple of 2^-64, so that a device can toss it exactly.`);
  return read;
}

/** The integer that a uniform 64-bit word is below with exactly this probability. */
export function threshold(chance) {
  return (chance.n * WORD) / chance.d;
}

/** The epsilon of a description. */
export function epsilonOf(text) {
  const read = fraction(text, "loss");
  check(read.n > 0n && read.n <= LARGEST_EPSILON * read.d, "loss must be an epsilon above 0 and at most 30.");
  return read;
}

/** 2^512 e^epsilon, rounded down: every term of the series is, and the rest of the series is left out. */
function expBelow(epsilon) {
  let [sum, term] = [0n, 1n << SCALE];
  for (let k = 1n; term > 0n; k += 1n) {
    sum += term;
    term = (term * epsilon.n) / (epsilon.d * k);
  }
  return sum;
}

/** e^(-power)/2 as [n, d], rounded up in the last of 512 binary places. */
export function halfExp(power) {
  return [1n << SCALE, 2n * expBelow(power)];
}

/** Whether n/d <= e^epsilon. Rounded to the safe side: what is this close to the limit is refused. */
export function within(n, d, epsilon) {
  return d > 0n && n << SCALE <= d * expBelow(epsilon);
}

/** A whole number of the description. */
export function whole(value, name, least, most) {
  check(
    Number.isSafeInteger(value) && value >= least && value <= most,
    `${name} must be a whole number from ${least} to ${most}.`,
  );
  return value;
}

/** A small prime number of the description, so that two values meet in as few hash buckets as they may. */
export function prime(value, name) {
  const number = whole(value, name, 2, 4096);
  for (let divisor = 2; divisor * divisor <= number; divisor += 1) check(number % divisor, `${name} must be prime.`);
  return number;
}

/** How many bits the numbers below `count` need. */
export function bitsFor(count) {
  return (BigInt(count) - 1n).toString(2).length * (BigInt(count) > 1n ? 1 : 0);
}
