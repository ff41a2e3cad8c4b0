import { sequelizeOnPg } from '../../tools/orms/underTest/sequelize.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, sequelizeOnPg)
