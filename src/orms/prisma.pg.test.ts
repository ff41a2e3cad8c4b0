import { prismaOnPg } from '../../tools/orms/underTest/prisma.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()

ormConformance(bench, prismaOnPg)
