import { mikroOrmOnPg } from '../../tools/orms/underTest/mikro-orm.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, mikroOrmOnPg)
