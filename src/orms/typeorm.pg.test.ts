import { typeormOnPg } from '../../tools/orms/underTest/typeorm.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, typeormOnPg)
