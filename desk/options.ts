import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

export interface DeskOptions {
  readonly once: boolean
  readonly rounds: number
  readonly increments: number
  readonly dataDir: string
  readonly port: number | undefined
  /** A server that is already there, to use instead of our own. */
  readonly url: string | undefined
}

export class WrongOption extends Error {}

const DEFAULTS = { rounds: 3, increments: 200 }

export const USAGE = `Two processes race for one wallet, without and with Lockstep.

  npm start                    on a PostgreSQL of its own, kept in .lockstep/data
  DATABASE_URL=… npm start     on yours, in the schemas lockstep and lockstep_desk

Options, after npm start --

  --rounds N       rounds of each race; default ${DEFAULTS.rounds}
  --increments N   increments of each racer in a round; default ${DEFAULTS.increments}
  --once           end after the races, instead of leaving the server running
  --data DIR       where its PostgreSQL keeps its data
  --port N         where its PostgreSQL listens; default: a free port
  --help           this`

/** What was asked for. */
export function parseOptions(args: readonly string[], env: NodeJS.ProcessEnv = process.env): DeskOptions | 'help' {
  const values = parse(args)
  if (values.help === true) return 'help'
  return {
    once: values.once === true,
    rounds: count('rounds', values.rounds, 1_000) ?? DEFAULTS.rounds,
    increments: count('increments', values.increments, 1_000_000) ?? DEFAULTS.increments,
    dataDir: values.data ?? fileURLToPath(new URL('../.lockstep/data', import.meta.url)),
    port: count('port', values.port, 65_535),
    url: env['DATABASE_URL'] || undefined,
  }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        rounds: { type: 'string' },
        increments: { type: 'string' },
        once: { type: 'boolean' },
        data: { type: 'string' },
        port: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    }).values
  } catch (error) {
    throw new WrongOption(`${(error as Error).message}\n\n${USAGE}`)
  }
}

function count(name: string, given: string | undefined, most: number): number | undefined {
  if (given === undefined) return undefined
  const value = Number(given)
  if (/^\d+$/.test(given) && value >= 1 && value <= most) return value
  throw new WrongOption(`--${name} must be a number from 1 to ${most}, not ${JSON.stringify(given)}.`)
}
