import type { Edge } from '../edges/edge.ts'
import { foreignLocks } from './foreignLocks.ts'
import { hostileNames } from './hostileNames.ts'
import { largeEvents } from './largeEvents.ts'
import { malformedHeaders } from './malformedHeaders.ts'
import { plantedSchema } from './plantedSchema.ts'
import { roles } from './roles.ts'
import { slowReceiver } from './slowReceiver.ts'

/** Every intrusion, in the order in which they are tried. */
export const intruderList: readonly Edge[] = [
  roles,
  plantedSchema,
  hostileNames,
  foreignLocks,
  largeEvents,
  malformedHeaders,
  slowReceiver,
]
