import type { OrmUnderTest } from './ormUnderTest.ts'

/** One ORM on one driver, loaded when it is wanted: together they take seconds to load. */
export interface OrmEntry {
  readonly name: string
  readonly driver: OrmUnderTest['driver']
  load(): Promise<OrmUnderTest>
}

/** Every ORM on every driver that it has an entry point for. The attack and the benchmark run all of them. */
export const ormsUnderTest: readonly OrmEntry[] = [
  { name: 'Drizzle (node-postgres)', driver: 'pg', load: async () => (await import('./drizzle.ts')).drizzleOnPg },
  {
    name: 'Drizzle (postgres-js)',
    driver: 'postgres.js',
    load: async () => (await import('./drizzle.ts')).drizzleOnPostgresJs,
  },
  { name: 'Kysely (pg)', driver: 'pg', load: async () => (await import('./kysely.ts')).kyselyOnPg },
  {
    name: 'Kysely (postgres.js)',
    driver: 'postgres.js',
    load: async () => (await import('./kysely.ts')).kyselyOnPostgresJs,
  },
  { name: 'Knex', driver: 'pg', load: async () => (await import('./knex.ts')).knexOnPg },
  { name: 'TypeORM', driver: 'pg', load: async () => (await import('./typeorm.ts')).typeormOnPg },
  { name: 'MikroORM', driver: 'pg', load: async () => (await import('./mikro-orm.ts')).mikroOrmOnPg },
  { name: 'Sequelize', driver: 'pg', load: async () => (await import('./sequelize.ts')).sequelizeOnPg },
  { name: 'Prisma', driver: 'pg', load: async () => (await import('./prisma.ts')).prismaOnPg },
]

/** The ORM of that name. */
export async function ormNamed(name: string): Promise<OrmUnderTest> {
  const entry = ormsUnderTest.find((each) => each.name === name)
  if (entry === undefined) throw new Error(`no ORM is named ${name}`)
  return entry.load()
}
