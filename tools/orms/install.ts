/** Run first by the build and the checks: the entry points for ORMs have the types of the ORMs. */
import { ensureOrms } from './load.ts'

ensureOrms()
