/** One of the two processes: its arguments name the library, and a message from its parent each step. */
import type * as Library from '../../src/index.ts'
import type { DriverName } from '../server/testing/workbench.ts'
import { Participant } from './sideBySide.ts'

export type Step = 'startDispatching' | 'work' | 'stop'

const [library, name, url, driver] = process.argv.slice(2) as [string, string, string, DriverName]
const loaded = (await import(library)) as typeof Library
const participant = new Participant(loaded, { name, url, driver })

process.on('message', (step: Step) => {
  void (async () => {
    try {
      await participant[step]()
      process.send?.({ ended: step })
      if (step === 'stop') process.disconnect()
    } catch (error) {
      process.send?.({ failed: step, error: String(error instanceof Error ? (error.stack ?? error) : error) })
    }
  })()
})
