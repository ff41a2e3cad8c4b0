import { describe, expect, test } from 'vitest'
import { jobQueue } from '../../tools/server/testing/jobQueue.ts'
import { DRIVERS, note, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { type Lockstep, NestedTransactionError } from '../index.ts'

const bench = await testBench()

describe.each(DRIVERS)('a job queue that requests share, %s', (driver) => {
  /**
   * Request A runs a job of its own inside its transaction. Request B queues its job meanwhile, outside of every transaction. A's job
   * ends and starts B's, in A's context, while A's transaction is open. Then A rolls back.
   */
  async function twoRequests(lockstep: Lockstep, job: () => Promise<void>): Promise<PromiseSettledResult<void>> {
    const add = jobQueue()
    const [working, queued] = [signal(), signal()]
    let b: Promise<PromiseSettledResult<void>[]> | undefined
    const a = lockstep.transaction({ lock: 'Order:a' }, async (tx) => {
      await add(async () => {
        await note(tx, 'of A')
        working.give()
        await queued.given
      })
      await b
      throw new Error('A changed its mind')
    })
    await working.given
    b = Promise.allSettled([add(job)])
    queued.give()
    await expect(a).rejects.toThrow('A changed its mind')
    return (await b)[0] as PromiseSettledResult<void>
  }

  test('rejects a job in the transaction of another request', async () => {
    const { lockstep } = bench.open(driver)
    const outcome = await twoRequests(lockstep, () => lockstep.transaction({}, (tx) => note(tx, 'of B')))
    expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'LOCKSTEP_NESTED_TRANSACTION' } })
    expect((outcome as PromiseRejectedResult).reason).toBeInstanceOf(NestedTransactionError)
    expect(await bench.notes()).toEqual([])
  })

  test('keeps the row of a job that runs in detached() when the other request rolls back', async () => {
    const { lockstep } = bench.open(driver)
    const outcome = await twoRequests(lockstep, () =>
      lockstep.detached(() => lockstep.transaction({ lock: 'Order:b' }, (tx) => note(tx, 'of B'))),
    )
    expect(outcome.status).toBe('fulfilled')
    expect(await bench.notes()).toEqual(['of B'])
  })

  test('includes the job of a request in its own transaction by its tx', async () => {
    const { lockstep } = bench.open(driver)
    const add = jobQueue()
    await lockstep.transaction({ lock: 'Order:a' }, async (tx) => {
      await add(() => tx.transaction({ lock: 'Order:a' }, (part) => note(part, 'of A')))
    })
    expect(await bench.notes()).toEqual(['of A'])
  })
})
