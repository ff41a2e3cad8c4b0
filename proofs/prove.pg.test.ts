import { readdir, readFile } from 'node:fs/promises'
import pg from 'pg'
import { describe, expect, inject, test } from 'vitest'
import { describeMachine, verdictOf } from '../tools/judge/report.ts'
import { testDatabase } from '../tools/server/testDatabase.ts'
import { faults } from './faults/index.ts'
import type { Form } from './history.ts'
import { LooksLikeProductionError } from './production.ts'
import type { RunResult } from './report/result.ts'
import { prove } from './run.ts'
import { scenarios } from './scenarios/index.ts'
import { SCHEMA } from './scenarios/scenario.ts'
import type { Trace } from './trace/trace.ts'

const database = await testDatabase({ leakGuard: false })

interface Wanted {
  readonly seed: number
  readonly minutes: number
  readonly forms: readonly Form[]
  readonly scenarios?: readonly string[]
  readonly faults?: readonly string[]
  readonly against?: string
  readonly anyway?: boolean
  readonly trace?: (trace: Trace) => Promise<void>
}

function play({ scenarios: names, faults: kinds, ...rest }: Wanted): Promise<RunResult> {
  return prove(
    {
      // How often each fault strikes is for a longer run to show.
      limitMinutes: rest.minutes,
      ...rest,
      scenarios: scenarios.filter(({ name }) => names?.includes(name) ?? true),
      faults: faults.filter(({ name }) => kinds?.includes(name) ?? true),
      machine: describeMachine(),
      replay: '',
    },
    () => undefined,
  )
}

/** What a goal that does not hold was about. A short run, or a slow one, might not show enough. */
const missed = ({ goals, violations }: RunResult): unknown[] => {
  const failed = goals.filter(({ holds, evidence }) => !holds && evidence !== true)
  return failed.length === 0 ? [] : [...failed, ...violations.filter(({ form }) => form === 'lockstep')]
}

describe('a bounded run', () => {
  let struck: string[] = []
  const remember = ({ faults: all }: RunResult): void => {
    struck = [...struck, ...all.filter((each) => each.struck > 0).map(({ fault }) => fault)]
  }

  test('catches every naive form', { timeout: 480_000 }, async () => {
    // It ends when the last one is caught.
    const result = await play({ seed: 11, minutes: 3, forms: ['naive'] })
    expect(missed(result)).toEqual([])
    remember(result)
  })

  test('reports no violation of a Lockstep form', { timeout: 480_000 }, async () => {
    let trace: Trace | undefined
    const result = await play({
      seed: 12,
      minutes: 0.2,
      forms: ['lockstep'],
      trace: async (recorded) => void (trace = recorded),
    })
    expect(missed(result)).toEqual([])
    // The model allows what the outbox did, which is more than nothing.
    expect(result.goals.map(({ name }) => name)).toContain('trace: steps that the model does not allow')
    expect(trace?.events.length).toBeGreaterThan(0)
    expect(trace?.batches.length).toBeGreaterThan(0)
    remember(result)
  })

  test('injects at least twelve kinds of faults', () => {
    expect(new Set(struck).size).toBeGreaterThanOrEqual(12)
  })
})

test(
  'prolongs a run whose naive form was not caught, up to the limit, and is inconclusive then',
  { timeout: 120_000 },
  async () => {
    const wallet = scenarios.filter(({ name }) => name === 'wallet')
    const unbreakable = wallet.map((scenario) => ({ ...scenario, naiveBreaks: ['an invariant that nobody checks'] }))
    const options = { forms: ['naive'] as const, seed: 13, faults: [], machine: '', replay: '' }
    // A busy machine may need all of its time for one round: the second is seen as soon as it begins.
    const seen = new AbortController()
    const result = await prove(
      { ...options, scenarios: unbreakable, minutes: 0.02, limitMinutes: 3, signal: seen.signal },
      ({ round }) => void (round > 2 && seen.abort()),
    )
    expect(result.scenarios[0]?.forms.naive.rounds).toBeGreaterThan(1)
    expect(verdictOf(result.goals)).toBe('inconclusive')
  },
)

/** A schedule that has found something. */
interface Seed {
  readonly found: string
  readonly form: Form
  readonly seed: number
  readonly minutes: number
  readonly scenarios: readonly string[]
  readonly faults: readonly string[]
}

const place = new URL('seeds/', import.meta.url)
const seeds = await Promise.all(
  (await readdir(place)).map(async (file) => JSON.parse(await readFile(new URL(file, place), 'utf8')) as Seed),
)

describe('seeds that have found something', () => {
  test.each(seeds)('$found', { timeout: 480_000 }, async ({ form, seed, minutes, scenarios: names, faults: kinds }) => {
    expect(missed(await play({ seed, minutes, forms: [form], scenarios: names, faults: kinds }))).toEqual([])
  })
})

describe("a server of the user's", () => {
  test('is rejected unchanged if others are connected', async () => {
    const against = inject('adminUrl')
    const other = new pg.Client({ connectionString: against, application_name: 'an application' })
    await other.connect()
    try {
      const run = play({ seed: 1, minutes: 0.05, forms: ['lockstep'], scenarios: ['wallet'], against })
      await expect(run).rejects.toThrow(LooksLikeProductionError)
    } finally {
      await other.end()
    }
  })

  test('is used on request, in a schema that is dropped afterwards', { timeout: 480_000 }, async () => {
    const against = database.url
    const wanted = {
      seed: 1,
      minutes: 0.05,
      forms: ['lockstep'],
      scenarios: ['wallet'],
      against,
      anyway: true,
    } as const
    const result = await play({ ...wanted, faults: ['kill', 'restart', 'slow-commit'] })
    expect(missed(result)).toEqual([])
    // What would strike others is left out, and the report says so.
    const skipped = result.faults.filter((each) => each.skipped !== undefined).map(({ fault }) => fault)
    expect(skipped).toEqual(['restart', 'slow-commit'])
    const client = new pg.Client(against)
    await client.connect()
    const { rows } = await client.query('SELECT nspname FROM pg_namespace WHERE nspname = $1', [SCHEMA])
    await client.end()
    expect(rows).toEqual([])
  })
})
