import { describe } from 'vitest'
import { deliveries, scenarios } from './scenarios/index.ts'
import { attackInSmall } from './small.ts'

/** The attacks on locks, leases and what stands on them; those on the outbox run beside them, in a file of their own. */
const others = Object.values(scenarios).filter((scenario) => !deliveries.includes(scenario))
describe.each(others)('attack $name', attackInSmall)
