import { InvalidOptionError } from './errors.ts'
import { nearest } from './nearest.ts'

/**
 * Options are checked by name at run time: a misspelled `locks` would otherwise be ignored, and the code would run unlocked.
 *
 * To check options of your own, write their names next to their type and check them before the first of them is read:
 *
 *     const LEASE_OPTIONS: OptionNames<LeaseOptions> = { ttlMs: true, waitMs: true, … }
 *     checkOptions('lease()', options, LEASE_OPTIONS)
 *
 * The compiler reports a name that is missing in the list, and one that the type does not have.
 */

/** `true`: `undefined` means the default. `'never undefined'`: a forgotten value would lock nothing, or something else. */
type OptionRule = true | 'never undefined'

/** Of a union, the names of all its members. */
type NamesOf<Options> = Options extends unknown ? keyof Options : never

/** Every name that an options object can have. */
export type OptionNames<Options> = Readonly<Record<NamesOf<Options>, OptionRule>>

/**
 * What the compiler can refuse of it: a name that is not known, also in a variable, and a key that may be undefined, also where
 * `exactOptionalPropertyTypes` is off. Use it in place of the options: `<Given extends Options>(options: Checked<Given, Options, 'lock'>)`.
 */
export type Checked<Given, Options, KeyName = never> = Given &
  // Names that are computed are checked at run time alone.
  (string extends keyof Given
    ? unknown
    : Refused<Exclude<keyof Given, keyof Options>> & NoneForgotten<Given, ForgottenIn<Given, KeyName>>)

// `unknown` where nothing is refused: beside `{}` the compiler takes anything for options, even a list.
type Refused<Names extends PropertyKey> = [Names] extends [never] ? unknown : Readonly<Record<Names, never>>

type NoneForgotten<Given, Names extends keyof Given> = [Names] extends [never]
  ? unknown
  : { readonly [Name in Names]: Exclude<Given[Name], undefined> }

/** An optional property may be left out; one that is there must have a value. */
type ForgottenIn<Given, KeyName> = keyof {
  [
    Name in keyof Given & KeyName as object extends Pick<Given, Name>
      ? never
      : undefined extends Given[Name]
        ? Name
        : never
  ]: true
} &
  keyof Given

/**
 * Refuses an options object with a name that is not known, and a key that is `undefined`. `where` is how the caller calls it:
 * `transaction()`. It takes about 25 ns: `transaction()` calls it every time.
 */
export function checkOptions(where: string, options: unknown, known: Readonly<Record<string, OptionRule>>): void {
  if (typeof options !== 'object' || options === null) throw notAnObject(where, options, known)
  // Inherited names as well: they would be read, too.
  for (const name in options) {
    const rule = known[name]
    if (rule === true) continue
    if (rule === 'never undefined') {
      if ((options as Record<string, unknown>)[name] === undefined) throw isUndefined(where, name)
      continue
    }
    // What a library has added to every object is not ours to refuse.
    if (Object.hasOwn(options, name) || !(name in Object.prototype)) throw unknownOption(where, name, known)
  }
}

/** Calls that end with a function: how each is written. The options before the function are never left out. */
const CALLS = {
  'transaction()': 'transaction(options, fn)',
  'tx.transaction()': 'tx.transaction(options, fn)',
  'lease.transaction()': 'lease.transaction(options, fn)',
  'lease()': 'lease(key, options, fn)',
  'leader()': 'leader(key, options, fn)',
  'handle()': 'consumer.handle(event, options, handler)',
  'perEvent()': 'perEvent(options, handler)',
  'consumer()': 'lockstep.consumer(name, options, handler)',
  'redisConsumer()': 'redisConsumer(name, options, handler)',
  'natsConsumer()': 'natsConsumer(name, options, handler)',
  'rabbitmqConsumer()': 'rabbitmqConsumer(name, options, handler)',
  'kafkaConsumer()': 'kafkaConsumer(name, options, handler)',
  'webhookConsumer()': 'webhookConsumer(name, options, handler)',
} as const

/** A call that ends with a function. */
export type CallWithFunction = keyof typeof CALLS

/** Refuses what is no function in the last place of a call. */
export function checkFunction(where: CallWithFunction, fn: unknown): void {
  if (typeof fn === 'function') return
  throw new InvalidOptionError(`${where} was given no function.`, { advice: howToCall(CALLS[where]) })
}

function howToCall(call: string): string {
  return `Call ${call}. Pass {} for no options.`
}

function notAnObject(where: string, given: unknown, known: Readonly<Record<string, OptionRule>>): InvalidOptionError {
  const kind = given === null || given === undefined ? String(given) : `a ${typeof given}`
  const call = (CALLS as Readonly<Record<string, string>>)[where]
  return new InvalidOptionError(`The options of ${where} are ${kind}, not an object.`, {
    advice: call === undefined ? listed(known) : howToCall(call),
  })
}

const EXTERNAL =
  'To create something outside the database, call lockstep.onceExternal(key, { find, begin, act, finish }).'

/** Options as they were named before, after the call that took them: what to use instead. */
const FORMER: ReadonlyMap<string, string> = new Map([
  ['new Lockstep() rollback', 'The option is now named "switchBack".'],
  ['combine() maxWaitMs', 'The option is now named "waitMs".'],
  ['idempotent() ttlMs', 'The option is now named "retainMs".'],
  ['new StreamVerifier() begin', 'The option is now named "start".'],
  ...['begin', 'act', 'finish', 'abandon', 'ttlMs', 'holder'].map((name) => [`once() ${name}`, EXTERNAL] as const),
  ...['retry', 'skip', 'pause', 'resume', 'erase'].flatMap((verb) =>
    ['by', 'reason'].map(
      (name) => [`outbox.${verb}() ${name}`, `Call outbox.${verb}(stream, { reason, by }).`] as const,
    ),
  ),
])

function isUndefined(where: string, name: string): InvalidOptionError {
  return new InvalidOptionError(`The option "${name}" of ${where} is undefined.`, {
    advice: `Pass a value: it was probably forgotten. Where none is meant, leave "${name}" out.`,
  })
}

function unknownOption(where: string, name: string, known: Readonly<Record<string, OptionRule>>): InvalidOptionError {
  const meant = nearest(name, Object.keys(known))
  return new InvalidOptionError(`Unknown option ${JSON.stringify(name)} of ${where}.`, {
    advice: FORMER.get(`${where} ${name}`) ?? (meant === undefined ? listed(known) : `Did you mean "${meant}"?`),
  })
}

function listed(known: Readonly<Record<string, OptionRule>>): string {
  return `The options are ${Object.keys(known).join(', ')}.`
}
