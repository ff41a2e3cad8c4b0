import { AsyncLocalStorage } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import { PrismaPg } from '@prisma/adapter-pg'
import { DriverUnsupportedError, JoinRefusedError, LockstepError } from '../errors.ts'
import type { PgPool } from '../postgres/index.ts'
import { onEndOf } from '../transactions/index.ts'
import { PRISMA_END } from './orms.sql.ts'
import { checkDriver, checkIsolation, type OrmTransaction } from './ormTransaction.ts'
import { withQuery } from './parsingClient.ts'

export type { OrmTransaction } from './ormTransaction.ts'

/** A generated Prisma client, also an extended one. */
export interface PrismaClientLike {
  readonly $transaction: (...given: never[]) => unknown
}

/** What `client.$transaction(async (db) => …)` passes to its function. */
export type PrismaTransaction<Client> = Client extends {
  $transaction(fn: (db: infer Db) => Promise<unknown>, ...rest: never[]): unknown
}
  ? Db
  : never

/** What `PrismaPg` of `@prisma/adapter-pg` takes beside its pool. */
export type PrismaPgSettings = NonNullable<ConstructorParameters<typeof PrismaPg>[1]>

/** What `new PrismaClient()` takes as `adapter`. */
export type PrismaAdapter = Pick<PrismaPg, 'provider' | 'adapterName' | 'connect'>

/**
 * The adapter for a Prisma client on the pool of Lockstep: `PrismaPg` of `@prisma/adapter-pg`, which takes a connection of the pool for each
 * transaction. Inside `prisma()` it takes the one of Lockstep's transaction.
 *
 * @example
 * const pool = new pg.Pool()
 * const lockstep = new Lockstep(pool)
 * const client = new PrismaClient({ adapter: prismaAdapter(pool) })
 */
export function prismaAdapter(pool: PgPool, options: PrismaPgSettings = {}): PrismaAdapter {
  const { provider, adapterName } = new PrismaPg({}, options)
  return {
    provider,
    adapterName,
    async connect() {
      // The adapter recognizes a pool by its own copy of pg, and takes any other object for a configuration. It never connects to anything here.
      const unused = await new PrismaPg({}, options).connect()
      const prototype = Object.getPrototypeOf(unused.underlyingDriver()) as object
      await unused.dispose()
      return new PrismaPg(checkoutPool(pool, prototype), options).connect()
    },
  }
}

/**
 * Prisma in a transaction of Lockstep: everything that is sent through the result runs under the locks of the transaction, and commits
 * with it. `db.$transaction(fn)` is a savepoint. The client must have the adapter of `prismaAdapter()`.
 *
 * @example
 * await lockstep.transaction({ lock: key`Account:${id}`, isolation: 'serializable' }, async (tx) => {
 *   const db = await prisma(tx, client)
 *   const account = await db.account.findUniqueOrThrow({ where: { id } })
 *   await db.account.update({ where: { id }, data: { balance: account.balance + amount } })
 * })
 */
export async function prisma<Client extends PrismaClientLike>(
  tx: OrmTransaction,
  client: Client,
): Promise<PrismaTransaction<Client>> {
  checkDriver('prisma()', tx, 'pg', '@prisma/adapter-pg has no driver for postgres.js. Give Lockstep a pg.Pool.')
  let ofTx = openParts.get(tx)
  if (ofTx === undefined) openParts.set(tx, (ofTx = new Map()))
  let part = ofTx.get(client)
  if (part === undefined) ofTx.set(client, (part = openPart(tx, client)))
  return (await part.db) as PrismaTransaction<Client>
}

/** Nothing is started in a transaction that is refused: Prisma's would never end. */
function openPart(tx: OrmTransaction, client: PrismaClientLike): PrismaPart {
  let part: PrismaPart | undefined
  if (!onEndOf(tx, () => void part?.end())) {
    throw new JoinRefusedError('prisma() was given a transaction that was joined.', {
      advice: 'Its end is not known. Open the transaction with lockstep.transaction().',
    })
  }
  part = new PrismaPart(tx, client)
  return part
}

/**
 * The client of a transaction that Prisma opened, for `lockstep.join()` and `lockstep.outbox.enqueue()`. The Prisma client must have the
 * adapter of `prismaAdapter()`.
 *
 * @example
 * await client.$transaction(async (db) => {
 *   await lockstep.outbox.enqueue(await clientOf(db), { topic: 'accounts', key: id, payload: account })
 * })
 */
export async function clientOf(db: { $executeRawUnsafe(text: string): PromiseLike<number> }): Promise<object> {
  const text = `${QUESTION}${randomUUID()} */ 1`
  await db.$executeRawUnsafe(text)
  const client = answers.get(text)
  answers.delete(text)
  if (client === undefined) throw foreignAdapter('clientOf()')
  return client
}

const openParts = new WeakMap<OrmTransaction, Map<object, PrismaPart>>()

/** The checkout that the transaction of Prisma is to take which is being started here. */
const starting = new AsyncLocalStorage<PrismaCheckout>()

/** Prisma ends a transaction that takes longer. How long this one can take, Lockstep decides. */
const NEVER_MS = 2_147_483_647

/** A client of Prisma, as it is called here. */
interface Transactional {
  $transaction(...given: unknown[]): Promise<unknown>
}

/** A transaction of Prisma on the connection of a transaction of Lockstep, from its start to its end. */
class PrismaPart {
  readonly db: Promise<object>
  /** Ends Prisma's transaction. Nothing is sent. */
  readonly end: () => Promise<void>

  constructor(tx: OrmTransaction, client: PrismaClientLike) {
    const checkout = new PrismaCheckout(tx.client as object)
    let finish!: () => void
    const finished = new Promise<void>((resolve) => (finish = resolve))
    let closed!: Promise<unknown>
    this.db = new Promise((resolve, reject) => {
      const work = async (db: object): Promise<void> => {
        if (!checkout.start()) throw foreignAdapter('prisma()')
        resolve(nestingIn(db, tx, client))
        await finished
      }
      const options = { maxWait: NEVER_MS, timeout: NEVER_MS }
      closed = starting.run(checkout, () => (client as unknown as Transactional).$transaction(work, options))
      closed.catch(reject)
    })
    this.end = async () => {
      checkout.end()
      finish()
      await closed.catch(() => undefined)
    }
  }
}

/** The same object with transactions that are savepoints of Lockstep. Prisma's own mix with what is sent through the outer one meanwhile. */
function nestingIn(db: object, tx: OrmTransaction, client: PrismaClientLike): object {
  const nested = async <T>(work: unknown, ...rest: unknown[]): Promise<T> => {
    if (Array.isArray(work)) return (await inTurn(work)) as T
    const [{ isolationLevel } = {}] = rest as { readonly isolationLevel?: string }[]
    // ReadCommitted is how Prisma writes it.
    checkIsolation('db.$transaction()', tx, isolationLevel?.replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' '))
    return tx.savepoint(async (inner) => {
      const part = new PrismaPart(inner, client)
      try {
        return await (work as (db: object) => Promise<T>)(await part.db)
      } finally {
        await part.end()
      }
    })
  }
  return new Proxy(db, {
    get(target, name) {
      // It throws after the end.
      void tx.client
      return name === '$transaction' ? nested : (Reflect.get(target, name) as unknown)
    },
  })
}

/** Prisma itself would send a list of calls in a transaction of its own, on another connection. A call is sent when it is awaited. */
async function inTurn(calls: readonly unknown[]): Promise<unknown[]> {
  const results: unknown[] = []
  for (const call of calls) results.push(await call)
  return results
}

/** What the adapter reads of an answer. */
const NOTHING = { rows: [], fields: [], rowCount: 0 }

/** The client that the adapter gets for a transaction of Lockstep. BEGIN and COMMIT, which Prisma sends by itself, are Lockstep's. */
class PrismaCheckout {
  readonly #client: object
  #state: 'offered' | 'taken' | 'open' | 'ended' = 'offered'

  constructor(client: object) {
    this.#client = client
  }

  /** Whether it is this call that gets it. */
  take(): boolean {
    if (this.#state !== 'offered') return false
    this.#state = 'taken'
    return true
  }

  /** Prisma has begun its transaction. False where it has done that on another connection. */
  start(): boolean {
    if (this.#state !== 'taken') return false
    this.#state = 'open'
    return true
  }

  end(): void {
    this.#state = 'ended'
  }

  async query(config: { readonly text: string }): Promise<unknown> {
    if (this.#state === 'taken' || (this.#state === 'ended' && PRISMA_END.has(config.text))) return NOTHING
    if (this.#state === 'open' && answer(config.text, this.#client)) return NOTHING
    try {
      return await (this.#client as { query(config: object): Promise<unknown> }).query(config)
    } catch (error) {
      throw kept(error)
    }
  }

  // Lockstep listens to the connection, and releases it.
  on(): void {}
  removeListener(): void {}
  release(): void {}
}

/** Prisma throws an error of its own in place of ours, with the code and what is in `meta`: there the retry finds it. */
function kept(error: unknown): unknown {
  if (!(error instanceof LockstepError)) return error
  return Object.assign(new Error(error.message), { code: error.code, meta: { driverAdapterError: error } })
}

/** The pool as the adapter sees it. A connection for a transaction of Lockstep is the transaction's own. */
function checkoutPool(pool: PgPool, prototype: object): ConstructorParameters<typeof PrismaPg>[0] {
  const connect = async (): Promise<object> => {
    const checkout = starting.getStore()
    if (checkout?.take() === true) return checkout
    const client = await pool.connect()
    return withQuery(client, (query, given) => {
      const [config] = given as [{ readonly text: string }]
      return answer(config.text, client) ? Promise.resolve(NOTHING) : query(...given)
    })
  }
  return new Proxy(pool, {
    getPrototypeOf: () => prototype,
    get(target, name) {
      if (name === 'connect') return connect
      const value = Reflect.get(target, name, target) as unknown
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  }) as unknown as ConstructorParameters<typeof PrismaPg>[0]
}

/** A statement that asks for the client through which it is sent. It is answered here and sent nowhere. */
const QUESTION = 'SELECT /* pg-lockstep clientOf '
const answers = new Map<string, object>()

function answer(text: string, client: object): boolean {
  if (!text.startsWith(QUESTION)) return false
  answers.set(text, client)
  return true
}

function foreignAdapter(where: string): DriverUnsupportedError {
  return new DriverUnsupportedError(`${where} was given a Prisma client with another adapter.`, {
    advice: 'Use new PrismaClient({ adapter: prismaAdapter(pool) }), with the pool that Lockstep has.',
  })
}
