import { describe } from 'vitest'
import { deliveries } from './index.ts'
import { attackScaledDown } from './scaledDown.ts'

const quick = deliveries.filter(({ needsBuild }) => needsBuild !== true)
describe.each(quick)('attack $name', attackScaledDown)
