import { describe } from 'vitest'
import { deliveries } from './index.ts'
import { attackInSmall } from './small.ts'

const quick = deliveries.filter(({ needsBuild }) => needsBuild !== true)
describe.each(quick)('attack $name', attackInSmall)
