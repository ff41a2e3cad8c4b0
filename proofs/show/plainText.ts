import { ACCOUNTS, INSTANCES, PORTFOLIOS } from './names.ts'

/** Who and what a checker speaks of, as the pictures call it. The lab names keys and operations so that they are unique. */
const RULES: readonly (readonly [RegExp, (...parts: string[]) => string])[] = [
  // A list of operations: their number stands before it.
  [/: (?:r\d+\.w\d+'*\.\w+\.[\d.]+(?:, | and )?)+(?:\d+ more)?$/g, () => ''],
  // w2 (r3.w2.instance.12.1): the worker is there already.
  [/ \(r\d+\.w\d+'*\.\w+\.[\d.]+\)/g, () => ''],
  [/\br\d+\.(w\d+'*)\.\w+\.[\d.]+/g, (_, worker = '') => `an operation of ${worker}`],
  [/\bportfolio \d+\.(\d+)/g, (_, place) => PORTFOLIOS[Number(place)] ?? `portfolio ${place}`],
  [/\b((?:long|short) instance [\d.]+)/g, (_, key = '') => instanceName(key)],
  [/\b(?:account|wallet) \d+\.(\d+)/g, (_, place) => ACCOUNTS[Number(place)] ?? `account ${place}`],
  [/\b[SB]\d+\.(\d+)\b/g, (_, number = '') => `signal #${number}`],
  [/\bthe world outside\b/g, () => 'the exchange'],
  // Which ones: the checkers know, and readers do not need to.
  [/(\bfor signal #\d+): .*$/g, (_, signal = '') => signal],
  // Microseconds help to find an entry of a history, and serve no other reader.
  [/\b(\d+)\.\d+(?= to \d| ms)/g, (_, ms = '') => ms],
]

/** Instances that are there for long, and then the others: two of them are never in one row. */
export function instanceName(key: string): string {
  const place = Number(key.split('.').at(-1)) + (key.startsWith('long') ? 0 : INSTANCES)
  return `Instance ${place + 1}`
}

export function plainText(text: string): string {
  return RULES.reduce((result, [pattern, replace]) => result.replaceAll(pattern, replace), text)
}
