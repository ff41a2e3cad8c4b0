import { describe } from 'vitest'
import { previousRelease } from '../../tools/previousRelease/previousRelease.ts'
import { deliveries, attacks } from './index.ts'
import { attackScaledDown } from './scaledDown.ts'

/**
 * The attacks on locks, leases and what stands on them. Those on the outbox run beside them, in a file of their own; those that are
 * scenarios run with all the others in the lab, in `prove.pg.test.ts`. That on the start page has a file of its own, as it has a browser. What needs
 * a server of yours has tests of its own.
 */
const others = Object.values(attacks).filter(
  (attack) =>
    !deliveries.includes(attack) &&
    attack.scenario === undefined &&
    attack.needsUrl !== true &&
    attack.name !== 'show' &&
    (attack.name !== 'upgrade' || previousRelease() !== undefined),
)
describe.each(others)('attack $name', attackScaledDown)
