import { drizzleOnPg, drizzleOnPostgresJs } from './drizzle.ts'
import type { OrmUnderTest } from './ormUnderTest.ts'

/** Every ORM on every driver that it has an entry point for. The attack and the benchmark run all of them. */
export const ormsUnderTest: readonly OrmUnderTest[] = [drizzleOnPg, drizzleOnPostgresJs]
