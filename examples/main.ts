/**
 * Runs one example on an empty database of yours and prints what it returns:
 *
 *     DATABASE_URL=postgres://… npx tsx examples/main.ts transfer
 */
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { run as cardTokenSequence } from './card-token-sequence.ts'
import { recipes } from './cookbook/recipes.ts'
import { run as events } from './events.ts'
import { run as getOrCreatePosition } from './get-or-create-position.ts'
import { run as hotAccount } from './hot-account.ts'
import { run as join } from './join.ts'
import { run as leases } from './leases.ts'
import { run as lostUpdate } from './lost-update.ts'
import { run as orderedTransfer } from './ordered-transfer.ts'
import { run as serializableWallet } from './serializable-wallet.ts'
import { run as tradesInOrder } from './trades-in-order.ts'
import { run as transfer } from './transfer.ts'

/** Both runs of a recipe of the cookbook. */
const both = (run: (pool: pg.Pool, locked: boolean) => Promise<unknown>) => async (pool: pg.Pool) => {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await lockstep.close()
  return { withoutLock: await run(pool, false), withLock: await run(pool, true) }
}

const examples: Readonly<Record<string, (pool: pg.Pool) => Promise<unknown>>> = {
  transfer,
  'lost-update': lostUpdate,
  'serializable-wallet': serializableWallet,
  join,
  events,
  'ordered-transfer': orderedTransfer,
  'get-or-create-position': getOrCreatePosition,
  'card-token-sequence': cardTokenSequence,
  'hot-account': hotAccount,
  leases,
  'trades-in-order': tradesInOrder,
  ...Object.fromEntries(Object.entries(recipes).map(([name, run]) => [name, both(run)])),
}

const example = examples[process.argv[2] ?? '']
if (example === undefined) {
  console.error(`Name one of ${Object.keys(examples).join(', ')}.`)
  process.exitCode = 2
} else {
  const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'] })
  try {
    console.log(await example(pool))
  } finally {
    await pool.end()
  }
}
