import { describe } from 'vitest'
import { deliveries, attacks } from './index.ts'
import { attackScaledDown } from './scaledDown.ts'

/** The attacks on locks, leases and what stands on them; those on the outbox run beside them, in a file of their own. */
const others = Object.values(attacks).filter((attack) => !deliveries.includes(attack))
describe.each(others)('attack $name', attackScaledDown)
