import type { Checker } from '../history.ts'
import { bids } from '../scenarios/bids.ts'
import { instance } from '../scenarios/instance.ts'
import { outbox } from '../scenarios/outbox.ts'
import { position } from '../scenarios/position.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import { transfers } from '../scenarios/transfers.ts'
import { total, wallets } from './pictures/balances.ts'
import { holders } from './pictures/holders.ts'
import { lanes } from './pictures/lanes.ts'
import type { PictureSource } from './pictures/picture.ts'
import { signals } from './pictures/signals.ts'
import { ACCOUNTS } from './names.ts'
import type { CardName, CardText } from './state.ts'

export interface Card extends Omit<CardText, 'code' | 'checkers'> {
  readonly scenario: Scenario
  /**
   * The checkers that are right while operations are in flight. The others wait until all is quiet: an event that has not arrived yet is not
   * lost, and a register that is being written has no final value.
   */
  readonly live: readonly Checker[]
  readonly picture: () => PictureSource
  /** The files in which the code is marked, in the order in which it is shown. */
  readonly files: Readonly<Record<'naive' | 'lockstep', readonly string[]>>
}

/** The checkers of a scenario with these names. */
function live({ checkers }: Scenario, ...names: readonly string[]): readonly Checker[] {
  return checkers.filter(({ name }) => names.includes(name))
}

/** One for each kind of system that goes wrong under concurrency. */
export const cards: readonly Card[] = [
  {
    card: 'trades',
    title: 'Trades',
    promise: 'Trade #101 never overtakes trade #100 of its portfolio.',
    red: 'An overtaking trade is red.',
    naive: 'Pending rows under a try-lock, sent and marked',
    lockstep: 'tx.enqueue() and outbox.dispatcher()',
    scenario: outbox,
    live: live(outbox, 'order per key'),
    picture: lanes,
    files: { naive: ['outbox.sql.ts', 'outbox.ts'], lockstep: ['outbox.ts'] },
  },
  {
    card: 'instances',
    title: 'Instances',
    promise: 'One request at a time takes the next step of a process.',
    red: 'Two holders of one instance at the same time are red.',
    naive: 'A lock row with an end, inserted where there is none',
    lockstep: 'leases.acquire() and lease.transaction()',
    scenario: instance,
    live: live(instance, 'mutual exclusion'),
    picture: holders,
    files: { naive: ['instance.sql.ts', 'instance.ts'], lockstep: ['scenario.ts', 'instance.ts'] },
  },
  {
    card: 'positions',
    title: 'Positions',
    promise: 'A signal opens one position, however many see it.',
    red: 'A signal with more than one position is red.',
    naive: 'Looks for the position, and opens it if there is none',
    lockstep: 'lockstep.onceExternal() and lockstep.once()',
    scenario: position,
    live: live(position, 'one per key', 'no deadlock'),
    picture: signals,
    files: { naive: ['position.sql.ts', 'position.ts'], lockstep: ['position.ts'] },
  },
  {
    card: 'transfers',
    title: 'Transfers',
    promise: 'Moving money neither makes nor loses any, and never deadlocks.',
    red: 'A total other than 4,000 is red.',
    naive: 'Reads both balances, and writes both',
    lockstep: 'lockRows() in one order, or combine()',
    scenario: transfers,
    live: live(transfers, 'conserved total', 'exactly once', 'no deadlock'),
    picture: () => total(4000, ACCOUNTS),
    files: { naive: ['transfers.ts'], lockstep: ['transfers.ts'] },
  },
  {
    card: 'wallets',
    title: 'Wallets',
    promise: 'A bid reserves its amount only if the wallet covers it.',
    red: 'A wallet below zero is red.',
    naive: 'Reads the balance, and takes the amount if it is covered',
    lockstep: 'transaction({ lock }) around the same code',
    scenario: bids,
    live: bids.checkers,
    picture: () => wallets(100, ACCOUNTS),
    files: { naive: ['bids.ts'], lockstep: ['bids.ts'] },
  },
]

export function cardOf(name: CardName): Card {
  return cards.find(({ card }) => card === name) as Card
}
