import { parseArgs } from 'node:util'
import { newSeed } from '../../proofs/seed.ts'
import { type BurstSize, FULL_BURST } from './bursts.ts'

export interface LoadOptions {
  readonly minutes: number
  /** Requests a second, of all systems together. */
  readonly rate: number
  /** The share of requests that meet on hot keys. */
  readonly contention: number
  readonly faults: boolean
  readonly processes: number
  /** How many requests come at once for one thing. */
  readonly burst: BurstSize
  readonly json: boolean
  readonly seed: number
  /** A desk that runs already, and its database. */
  readonly running: { readonly origin: string; readonly databaseUrl: string } | undefined
}

export class OptionError extends Error {}

const DEFAULTS = { minutes: 1, rate: 50, contention: 0.3, processes: 3 }

export const USAGE = `Load on the desk, and then the question whether everything is right.

  npm run load -- --minutes 2 --faults

Options

  --minutes N       how long requests are sent; default ${DEFAULTS.minutes}
  --rate N          requests a second, of all five systems together; default ${DEFAULTS.rate}
  --contention N    from 0 to 1: the share of requests that meet on hot keys; default ${DEFAULTS.contention}
  --faults          processes are killed, sessions ended, and the exchange misbehaves
  --processes N     of its own desk; default ${DEFAULTS.processes}
  --url URL         a desk that runs already, without other traffic, on DATABASE_URL; then only the exchange misbehaves
  --seed N          what is random begins here; the default is random and printed
  --json            the result as one JSON object on the last line
  --help            this

It ends with 1 where anything is not right, and with 3 where everything is right but the run has not shown enough: a fault
struck nothing, or the machine was too busy for a limit of time to mean anything.`

export function parseOptions(args: readonly string[], env: NodeJS.ProcessEnv = process.env): LoadOptions | 'help' {
  const values = parse(args)
  if (values.help === true) return 'help'
  return {
    minutes: number('minutes', values.minutes, 0.01, 24 * 60) ?? DEFAULTS.minutes,
    rate: number('rate', values.rate, 1, 2000) ?? DEFAULTS.rate,
    contention: number('contention', values.contention, 0, 1) ?? DEFAULTS.contention,
    faults: values.faults === true,
    processes: whole('processes', values.processes, 1, 16) ?? DEFAULTS.processes,
    burst: FULL_BURST,
    json: values.json === true,
    seed: whole('seed', values.seed, 0, 2 ** 32 - 1) ?? newSeed(),
    running: running(values.url, env['DATABASE_URL']),
  }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        minutes: { type: 'string' },
        rate: { type: 'string' },
        contention: { type: 'string' },
        faults: { type: 'boolean' },
        processes: { type: 'string' },
        url: { type: 'string' },
        seed: { type: 'string' },
        json: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    }).values
  } catch (error) {
    throw new OptionError(`${(error as Error).message}\n\n${USAGE}`)
  }
}

function running(url: string | undefined, databaseUrl: string | undefined): LoadOptions['running'] {
  if (url === undefined) return undefined
  if (!URL.canParse(url) || !['http:', 'https:'].includes(new URL(url).protocol)) {
    throw new OptionError(`--url must be an address such as http://127.0.0.1:4800, not ${JSON.stringify(url)}.`)
  }
  if (!databaseUrl) {
    throw new OptionError('--url needs DATABASE_URL as well: the outcome of the requests is read from the database.')
  }
  return { origin: new URL(url).origin, databaseUrl }
}

function number(name: string, given: string | undefined, least: number, most: number): number | undefined {
  if (given === undefined) return undefined
  const value = Number(given)
  if (given.trim() !== '' && value >= least && value <= most) return value
  throw new OptionError(`--${name} must be a number from ${least} to ${most}, not ${JSON.stringify(given)}.`)
}

function whole(name: string, given: string | undefined, least: number, most: number): number | undefined {
  const value = number(name, given, least, most)
  if (value === undefined || Number.isInteger(value)) return value
  throw new OptionError(`--${name} must be a whole number, not ${JSON.stringify(given)}.`)
}
