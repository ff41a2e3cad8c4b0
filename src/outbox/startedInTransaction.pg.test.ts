import { describe, expect, test } from 'vitest'
import { type Dispatching, dispatching } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, note, testBench } from '../../tools/server/testing/workbench.ts'

const bench = await testBench()

describe.each(DRIVERS)('a dispatcher that is started inside a transaction, %s', (driver) => {
  test('delivers while the transaction is open, and keeps what its sink commits', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const name = `inside-${driver}`
    let run: Dispatching | undefined
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic: name, key: 'a', payload: 1 }))
    const starter = lockstep.transaction({ lock: 'Setup:1' }, async (tx) => {
      await note(tx, 'undone')
      run = dispatching(lockstep, {
        name,
        // Not the event of the other driver's test: its delivery says nothing about this one.
        topics: [name],
        async sink(batch) {
          for (const { seq } of batch) await lockstep.transaction({ lock: 'Sink:1' }, (own) => note(own, `#${seq}`))
        },
      })
      await run.until(1)
      throw new Error('not today')
    })
    await expect(starter).rejects.toThrow('not today')
    await run?.stop()
    expect(await bench.notes()).toEqual(['#1'])
  })
})
