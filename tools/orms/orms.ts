import { drizzleOnPg, drizzleOnPostgresJs } from './drizzle.ts'
import { knexOnPg } from './knex.ts'
import { controlledKyselyOnPg, kyselyOnPg } from './kysely.ts'
import { typeormOnPg } from './typeorm.ts'

/** What an ORM does in a transaction of its own, to a table `notes (id text PRIMARY KEY)`. */
export interface OrmPart {
  readonly insert: (id: string) => Promise<unknown>
  /** A transaction inside of it: the ORM's own savepoint. */
  readonly nested: (work: OrmWork) => Promise<unknown>
}

/** An ORM that works on a client that it was given. */
export interface Orm {
  readonly insert: (id: string) => Promise<unknown>
  readonly transaction: (work: OrmWork) => Promise<unknown>
}

export type OrmWork = (part: OrmPart) => Promise<unknown>

export interface OrmDriver {
  readonly name: string
  readonly driver: 'pg' | 'postgres.js'
  /** `client`: every transaction is on the one that it was given. `pool`: each has one of its own. */
  readonly takes: 'client' | 'pool'
  readonly open: (client: unknown) => Promise<Orm>
}

/** Every ORM that is tried. */
export const orms: readonly OrmDriver[] = [
  drizzleOnPg,
  drizzleOnPostgresJs,
  kyselyOnPg,
  controlledKyselyOnPg,
  knexOnPg,
  typeormOnPg,
]
