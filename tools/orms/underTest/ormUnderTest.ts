import type { Isolation, Lockstep, Transaction } from 'pg-lockstep'
import type pg from 'pg'
import type { Sql } from 'postgres'

/** The pool and the Lockstep on it that an ORM is tried with. */
export interface OrmSite {
  readonly lockstep: Lockstep
  readonly pool: pg.Pool | Sql
  readonly url: string
}

/** One ORM on one driver: what the conformance suite, the attack and the benchmark run. */
export interface OrmUnderTest {
  readonly name: string
  readonly driver: 'pg' | 'postgres.js'
  /** Whether its own transactions can be joined: whether the entry point has a `clientOf()` for this driver. Default true. */
  readonly joins?: boolean
  /** Sets up what the ORM has once for a process, such as its entities and its own pool. */
  open(site: OrmSite): Promise<OpenOrm>
}

export interface OpenOrm {
  /** Runs the function with the ORM's object of a transaction of Lockstep. */
  inside<T>(tx: Transaction, work: (part: OrmPart) => Promise<T>): Promise<T>
  /** A transaction that the ORM opens by itself, on its own pool. */
  own<T>(isolation: Isolation, work: (part: OrmPart) => Promise<T>): Promise<T>
  /** Ends what open() has started; the pool of the site is not closed here. */
  close(): Promise<void>
}

/** What is done through the ORM, on the tables of createOrmTables. */
export interface OrmPart {
  readonly insertNote: (id: string) => Promise<unknown>
  readonly readCounter: (name: string) => Promise<number>
  readonly writeCounter: (name: string, value: number) => Promise<unknown>
  /** Runs a statement without parameters, as the ORM's users do with SQL of their own. */
  readonly raw: (text: string) => Promise<unknown>
  /** The ORM's own nested transaction. */
  readonly nested: <T>(work: (part: OrmPart) => Promise<T>) => Promise<T>
  /** Writes a row of every type through the ORM. */
  readonly writeSample: (id: string) => Promise<unknown>
  /** The row as the ORM gives it, by a prepared statement if the ORM has these. */
  readonly readSample: (id: string) => Promise<object | undefined>
  /** `clientOf()` of the entry point. */
  readonly client: () => object | Promise<object>
}

/** What writeSample() writes, in the types of JavaScript. */
export const SAMPLE = {
  big: 9_007_199_254_740_993n,
  amount: '12345678901234567890.123456789',
  numbers: [1, 2, 3],
  texts: ['a', 'b, "c"'],
  document: { nested: { list: [1, 'two', null] } },
  at: new Date('2026-03-04T05:06:07.089Z'),
  day: '2026-03-04',
} as const
