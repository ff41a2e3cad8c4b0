import { AsyncLocalStorage } from 'node:async_hooks'
import type { EntityManager } from '@mikro-orm/postgresql'
import { codeOf, isSqlState } from '../postgres/index.ts'
import { checkDriver, checkIsolation, type OrmTransaction, privateField, refuseToEnd } from './ormTransaction.ts'
import { type PgTypes, withParsers, withQuery } from './parsingClient.ts'

export type { OrmTransaction } from './ormTransaction.ts'

const VERSIONS = '@mikro-orm/postgresql 6'

/**
 * MikroORM in a transaction of Lockstep: a fork of the entity manager whose statements all run under the locks of the transaction, and
 * commit with it. `em.transactional()` is a savepoint. Call `em.flush()` before the function returns.
 *
 * @example
 * await lockstep.transaction({ lock: key`Account:${id}`, isolation: 'serializable' }, async (tx) => {
 *   const em = mikroOrm(tx, orm)
 *   const account = await em.findOneOrFail(Account, id)
 *   account.balance += amount
 *   await em.flush()
 * })
 */
export function mikroOrm<Manager extends EntityManager>(tx: OrmTransaction, orm: { readonly em: Manager }): Manager {
  checkDriver('mikroOrm()', tx, 'pg', '@mikro-orm/postgresql has no driver for postgres.js. Give Lockstep a pg.Pool.')
  const em = orm.em.fork()
  em.setTransactionContext(contextOn(tx, em))
  return inScope(em)
}

/**
 * The client of a transaction that MikroORM opened, for `lockstep.join()` and `lockstep.outbox.enqueue()`.
 *
 * @example
 * await orm.em.transactional(async (em) => {
 *   await em.flush()
 *   await lockstep.outbox.enqueue(await clientOf(em), { topic: 'accounts', key: id, payload: account })
 * })
 */
export async function clientOf(em: EntityManager): Promise<object> {
  const { client } = em.getTransactionContext<{ client?: { acquireConnection?(): Promise<object> } }>() ?? {}
  const connection = await client?.acquireConnection?.()
  return privateField(connection, {
    of: 'The entity manager that clientOf() was given',
    path: 'getTransactionContext().client.acquireConnection()',
    versions: VERSIONS,
  })
}

/** What MikroORM uses of a transaction of Knex, beside its client. */
interface KnexContext {
  readonly isTransaction: true
  transaction(): Promise<object>
  commit(): void
  rollback(): Promise<void>
  readonly executionPromise: Promise<void>
}

/** Through which scope of Lockstep a transaction of Knex sends. */
const scopes = new WeakMap<object, OrmTransaction>()

/** The savepoint that a nested transaction of MikroORM is to be, which is being opened here. */
const opening = new AsyncLocalStorage<OrmTransaction>()

/** MikroORM keeps a transaction of Knex. This one has begun, and nothing in it begins or ends a transaction. */
function contextOn(tx: OrmTransaction, em: EntityManager): object {
  // The public way to a second Knex with a client object of its own.
  const knex = em.getKnex().withUserParams({})
  const connection = connectionOn(tx, em)
  Object.assign(knex.client as object, {
    transacting: true,
    acquireConnection: () => Promise.resolve(connection),
    releaseConnection: () => Promise.resolve(),
  })
  const properties: KnexContext = {
    isTransaction: true,
    async transaction() {
      return contextOn(privateField(opening.getStore(), OPENING), em)
    },
    // Lockstep does that, once MikroORM's function has returned or thrown.
    commit() {},
    async rollback() {},
    executionPromise: Promise.resolve(),
  }
  for (const [name, value] of Object.entries(properties)) {
    Object.defineProperty(knex, name, { value, configurable: true, enumerable: true, writable: true })
  }
  scopes.set(knex, tx)
  return knex
}

const OPENING = { of: 'The nested transaction', path: 'savepoint', versions: `${VERSIONS}, through em.transactional()` }

type Work<Manager> = (em: Manager) => Promise<unknown>
type TransactionalOptions = NonNullable<Parameters<EntityManager['transactional']>[1]>

/** Makes nested transactions of an entity manager and its forks savepoints of Lockstep. */
function inScope<Manager extends EntityManager>(em: Manager): Manager {
  const scopeOf = (): OrmTransaction | undefined => scopes.get(em.getTransactionContext<object>() ?? {})
  const own = {
    transactional: em.transactional.bind(em) as (
      work: Work<Manager>,
      options?: TransactionalOptions,
    ) => Promise<unknown>,
    fork: em.fork.bind(em),
    begin: em.begin.bind(em),
    commit: em.commit.bind(em),
    rollback: em.rollback.bind(em),
  }
  const refusing =
    <Given extends unknown[]>(name: string, original: (...given: Given) => Promise<void>) =>
    async (...given: Given): Promise<void> => {
      if (scopeOf() !== undefined) refuseToEnd(`em.${name}()`)
      await original(...given)
    }
  return Object.assign(em, {
    async transactional(work: Work<Manager>, options: TransactionalOptions = {}): Promise<unknown> {
      const tx = scopeOf()
      const propagation: string = options.propagation ?? NESTED
      if (tx === undefined || propagation !== NESTED) return own.transactional(work, options)
      checkIsolation('em.transactional()', tx, options.isolationLevel)
      return tx.savepoint((inner) => opening.run(inner, () => own.transactional(work, options)))
    },
    fork: (options?: Parameters<Manager['fork']>[0]) => inScope(own.fork(options)),
    begin: refusing('begin', own.begin),
    commit: refusing('commit', own.commit),
    rollback: refusing('rollback', own.rollback),
  })
}

/** The propagation that `transactional()` has unless it is given another. */
const NESTED = 'nested'

/** The client with MikroORM's parsers, which give dates as texts. */
function connectionOn(tx: OrmTransaction, em: EntityManager): object {
  const { types } = em.getConnection().getConnectionOptions() as { types?: PgTypes }
  const path = 'getConnection().getConnectionOptions().types'
  const client = withParsers(tx.client as object, privateField(types, { of: 'MikroORM', path, versions: VERSIONS }))
  return withQuery(client, (query, given) => {
    const callback = given.at(-1)
    if (typeof callback !== 'function') return query(...given)
    const answer = (error: unknown, result: unknown): unknown =>
      Reflect.apply(callback, undefined, [kept(error), result])
    try {
      return query(...given.slice(0, -1), answer)
    } catch (error) {
      throw kept(error)
    }
  })
}

/** MikroORM copies the fields of an error into its own error and drops the original. So an error known only by its class is put into a field. */
function kept(error: unknown): unknown {
  if (isSqlState(error) || !(error instanceof Error)) return error
  const code = codeOf(error)
  return Object.assign(new Error(error.message, { cause: error }), code === undefined ? {} : { code })
}
