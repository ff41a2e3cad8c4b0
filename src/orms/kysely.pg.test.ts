import { kyselyOnPg, kyselyOnPostgresJs } from '../../tools/orms/underTest/kysely.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, kyselyOnPg)
ormConformance(bench, kyselyOnPostgresJs)
