import type { Edge } from '../edges/edge.ts'
import { foreignLocks } from './foreignLocks.ts'
import { hostileNames } from './hostileNames.ts'
import { plantedSchema } from './plantedSchema.ts'
import { roles } from './roles.ts'

/** Every intrusion, in the order in which they are tried. */
export const intruderList: readonly Edge[] = [roles, plantedSchema, hostileNames, foreignLocks]
