import { attack } from './attack.ts'
import { attackAll, FULL, SMALL } from './edges/attackAll.ts'
import { intruderList } from './intruder/index.ts'

/**
 * People who should not get in: roles that try everything in the schema, a schema that was planted before the first migration, a
 * schema's name that is SQL, a session that takes Lockstep's locks. Each is refused; a control beside it shows that the fault is there
 * without the protection.
 */
export const intruder = attack({
  name: 'intruder',
  about: 'roles that try every table and function, planted schemas, hostile names and input: each is refused',
  full: FULL,
  small: SMALL,
  run: (size, reportProgress) => attackAll('intrusion', intruderList, size, reportProgress),
})
