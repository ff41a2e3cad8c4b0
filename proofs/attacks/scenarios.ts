import { failsOnlyWith } from '../checkers/failsOnlyWith.ts'
import { atMost } from '../checkers/mutualExclusion.ts'
import { INSUFFICIENT } from '../scenarios/transfers.ts'
import { scenarioAttack } from './scenarioAttack.ts'

/** Sixteen callers of one wallet: both drivers, direct and behind PgBouncer, READ COMMITTED and SERIALIZABLE. */
export const wallet = scenarioAttack({
  name: 'wallet',
  about: 'increments of one wallet under the declared lock: none is lost, and none fails to be serialized',
  scenario: 'wallet',
  faults: ['kill', 'terminate', 'cut-in-commit', 'pooler'],
  lanes: 4,
  minutes: 2,
})

/** Sixty-four callers, half of them through combine, on both drivers, while sessions are ended: no caller notices a retry. */
export const transfers = scenarioAttack({
  name: 'transfers',
  about: 'money among accounts in random directions, plain and combined, while sessions are terminated',
  scenario: 'transfers',
  faults: ['terminate'],
  lanes: 16,
  minutes: 2,
  checkers: [failsOnlyWith(INSUFFICIENT)],
})

/** A hundred callers for each position; creators are killed and stopped at the exchange, and past their lease. */
export const once = scenarioAttack({
  name: 'once',
  about: 'a hundred calls of once() and onceExternal() for one key from four processes: one creates, all get the same',
  scenario: 'position',
  faults: ['kill', 'pause'],
  lanes: 25,
  minutes: 3,
})

/** Sixteen callers in each of four processes, which are killed with batches in flight, or lose the answer to their COMMIT. */
export const combine = scenarioAttack({
  name: 'combine',
  about: 'processes are killed in the middle of a batch: every success is in the books, nothing is there twice',
  scenario: 'combine',
  faults: ['kill', 'terminate', 'cut-in-commit'],
  lanes: 16,
  minutes: 2,
})

/** Forty-eight acquirers for a few names, which are new again and again. */
export const leases = scenarioAttack({
  name: 'leases',
  about: 'forty-eight acquirers of one lease at once: one is granted; with the query of document 001 sometimes two',
  scenario: 'instance',
  faults: [],
  lanes: 12,
  minutes: 3,
  naiveBreaks: [atMost(1).name],
})
