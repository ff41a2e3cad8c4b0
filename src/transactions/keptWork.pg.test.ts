import { describe, expect, test } from 'vitest'
import { strikeNextCommit } from '../../proofs/faults/inCommit.ts'
import { DRIVERS, failureOf, firstCall, testBench } from '../../tools/server/testing/workbench.ts'
import { key, type Transaction } from '../index.ts'
import type { Statement } from '../postgres/index.ts'
import { type KeptWork, OpenTransaction } from './index.ts'

/** What a part keeps for COMMIT, with a part that writes notes. */

const bench = await testBench()
const LOCK = { lock: key`Order:1` }

class Notes implements KeptWork {
  readonly texts: string[] = []
  commits = 0

  statements(): readonly Statement[] {
    return this.texts.map((text) => ({ text: 'INSERT INTO notes VALUES ($1)', values: [text] }))
  }

  append(inner: Notes): void {
    this.texts.push(...inner.texts)
  }

  committed(): void {
    this.commits++
  }
}

async function keep(tx: Transaction, text: string): Promise<Notes> {
  if (!(tx instanceof OpenTransaction)) throw new Error('no transaction of the library')
  const open: OpenTransaction = tx
  let notes = new Notes()
  await open.keep(() => (notes = open.workOf(Notes, () => notes)).texts.push(text))
  return notes
}

describe.each(DRIVERS)('work that a part keeps for COMMIT, %s', (driver) => {
  test('is sent with COMMIT, after the statements of the caller, and called back once', async () => {
    const { lockstep } = bench.open(driver)
    const notes = await lockstep.transaction(LOCK, async (tx) => {
      await keep(tx, 'one')
      await tx.queryAtCommit('DELETE FROM notes')
      const kept = await keep(tx, 'two')
      expect(await bench.notes()).toEqual([])
      return kept
    })
    expect(await bench.notes()).toEqual(['one', 'two'])
    expect(notes.commits).toBe(1)
  })

  test('follows its savepoint: appended on release, dropped on rollback', async () => {
    const { lockstep } = bench.open(driver)
    const [outer, adopted] = await lockstep.transaction(LOCK, async (tx) => {
      const first = await tx.savepoint((inner) => keep(inner, 'first'))
      await failureOf(
        tx.savepoint(async (inner) => {
          await keep(inner, 'undone')
          throw new Error('no')
        }),
      )
      await tx.savepoint((inner) => keep(inner, 'second'))
      return [await keep(tx, 'third'), first]
    })
    expect(outer).toBe(adopted)
    expect(outer.texts).toEqual(['first', 'second', 'third'])
    expect(await bench.notes()).toEqual(['first', 'second', 'third'])
    expect(outer.commits).toBe(1)
  })

  test('that fails rolls the transaction back, and is not called back', async () => {
    const { lockstep } = bench.open(driver)
    let notes = new Notes()
    const failing = lockstep.transaction(LOCK, async (tx) => {
      await keep(tx, 'same')
      notes = await keep(tx, 'same')
    })
    expect(await failureOf(failing)).toMatchObject({ code: '23505' })
    expect(await bench.notes()).toEqual([])
    expect(notes.commits).toBe(0)
  })

  test('is not sent when the function throws', async () => {
    const { lockstep } = bench.open(driver)
    let notes = new Notes()
    const failing = lockstep.transaction(LOCK, async (tx) => {
      notes = await keep(tx, 'never')
      throw new Error('no')
    })
    await expect(failing).rejects.toThrow('no')
    expect(await bench.notes()).toEqual([])
    expect(notes.commits).toBe(0)
  })

  test.each([
    { fault: 'answer lost', retry: {}, tries: [1] },
    // The first try is rolled back.
    { fault: 'request lost', retry: {}, tries: [0, 1] },
    // Without a retry there is no transaction id to ask for: it may have committed.
    { fault: 'answer lost', retry: false, tries: [1] },
    { fault: 'request lost', retry: false, tries: [1] },
  ] as const)(
    'is called back unless COMMIT certainly failed: $fault, retry $retry',
    async ({ fault, retry, tries }) => {
      const { lockstep, proxy } = await bench.proxied(driver)
      await firstCall(lockstep)
      const works: Notes[] = []
      const pending = lockstep.transaction({ ...LOCK, retry }, async (tx) => {
        works.push(await keep(tx, `try ${works.length + 1}`))
        if (works.length === 1) strikeNextCommit(proxy, fault)
      })
      if (retry === false) expect(await failureOf(pending)).toMatchObject({ code: 'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN' })
      else await pending
      expect(works.map(({ commits }) => commits)).toEqual(tries)
    },
  )
})
