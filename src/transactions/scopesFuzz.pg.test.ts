import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type AnyClient, noteBy, ofTransaction } from '../../tools/server/testing/clientOf.ts'
import { type DriverName, DRIVERS, note, testBench } from '../../tools/server/testing/workbench.ts'
import type { Transaction } from '../index.ts'

const bench = await testBench()

/** What a part of a transaction does. `id` is filled in before it runs. */
type Part =
  | { readonly does: 'insert'; readonly by: 'query' | 'client'; id: string }
  | { readonly does: 'savepoint'; readonly fails: boolean; readonly together: boolean; readonly parts: readonly Part[] }
  | { readonly does: 'begin'; readonly ends: End; readonly parts: readonly ClientPart[] }

type End = 'COMMIT' | 'ROLLBACK' | 'release'

/** What is sent on one client between BEGIN and its end. */
type ClientPart =
  | { readonly does: 'insert'; id: string }
  | { readonly does: 'begin'; readonly ends: 'COMMIT' | 'ROLLBACK'; readonly parts: readonly ClientPart[] }

const { client: clientPart } = fc.letrec<{ client: ClientPart }>((tie) => ({
  client: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constant(null).map((): ClientPart => ({ does: 'insert', id: '' })),
    fc.record({
      does: fc.constant('begin' as const),
      ends: fc.constantFrom('COMMIT' as const, 'ROLLBACK' as const),
      parts: fc.array(tie('client'), { maxLength: 3 }),
    }),
  ),
}))

const { part } = fc.letrec<{ part: Part }>((tie) => ({
  part: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom('query' as const, 'client' as const).map((by): Part => ({ does: 'insert', by, id: '' })),
    fc.record({
      does: fc.constant('begin' as const),
      ends: fc.constantFrom<End>('COMMIT', 'ROLLBACK', 'release'),
      parts: fc.array(clientPart, { maxLength: 3 }),
    }),
    fc.record({
      does: fc.constant('savepoint' as const),
      fails: fc.boolean(),
      together: fc.boolean(),
      parts: fc.array(tie('part'), { maxLength: 4 }),
    }),
  ),
}))

const program = fc.record({ fails: fc.boolean(), together: fc.boolean(), parts: fc.array(part, { maxLength: 6 }) })

/** Gives every insert an id of its own, and collects those that must be there at the end. */
function plan(parts: readonly (Part | ClientPart)[], kept: boolean, seen: { count: number; expected: string[] }): void {
  for (const each of parts) {
    if (each.does === 'insert') {
      each.id = String(++seen.count).padStart(3, '0')
      if (kept) seen.expected.push(each.id)
    } else {
      plan(each.parts, kept && ('fails' in each ? !each.fails : each.ends === 'COMMIT'), seen)
    }
  }
}

const INTENDED = new Error('as intended')

class Runner {
  readonly #driver: DriverName

  constructor(driver: DriverName) {
    this.#driver = driver
  }

  async run(
    tx: Transaction,
    { parts, together, fails }: { parts: readonly Part[]; together: boolean; fails: boolean },
  ): Promise<void> {
    if (together) await Promise.all(parts.map((each) => this.#part(tx, each)))
    else for (const each of parts) await this.#part(tx, each)
    if (fails) throw INTENDED
  }

  async #part(tx: Transaction, each: Part): Promise<void> {
    if (each.does === 'insert') {
      await (each.by === 'query' ? note(tx, each.id) : noteBy(ofTransaction(this.#driver, tx), each.id))
    } else if (each.does === 'savepoint') {
      await tx
        .savepoint((inner) => this.run(inner, each))
        .catch((error: unknown) => {
          if (error !== INTENDED) throw error
        })
    } else {
      const client = await ofTransaction(this.#driver, tx).another()
      await client.send('BEGIN')
      await this.#onClient(client, each.parts)
      if (each.ends !== 'release') await client.send(each.ends)
      client.release()
    }
  }

  async #onClient(client: AnyClient, parts: readonly ClientPart[]): Promise<void> {
    for (const each of parts) {
      if (each.does === 'insert') {
        await noteBy(client, each.id)
      } else {
        await client.send('BEGIN')
        await this.#onClient(client, each.parts)
        await client.send(each.ends)
      }
    }
  }
}

describe.each(DRIVERS)('any program of savepoints and clients, %s', (driver) => {
  test('keeps what every scope around it has kept, and nothing else', async () => {
    const { lockstep } = bench.open(driver)
    await fc.assert(
      fc.asyncProperty(program, async (wanted) => {
        const seen = { count: 0, expected: [] as string[] }
        plan(wanted.parts, !wanted.fails, seen)
        const runner = new Runner(driver)
        const ended = lockstep.transaction({ lock: 'Order:1' }, (tx) => runner.run(tx, wanted))
        await ended.catch((error: unknown) => {
          if (error !== INTENDED) throw error
        })
        expect(await bench.notes()).toEqual(seen.expected)
        await bench.admin.query('TRUNCATE notes')
      }),
      { numRuns: 150 },
    )
  })
})
