import { describe } from 'vitest'
import { deliveries } from './scenarios/index.ts'
import { attackInSmall } from './small.ts'

const quick = deliveries.filter(({ needsBuild }) => needsBuild !== true)
describe.each(quick)('attack $name', attackInSmall)
