import { drizzleOnPg, drizzleOnPostgresJs } from '../../tools/orms/underTest/drizzle.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, drizzleOnPg)
ormConformance(bench, drizzleOnPostgresJs)
