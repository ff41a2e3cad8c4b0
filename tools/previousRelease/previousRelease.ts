import { type BuiltLibrary, buildLibrary, CommitMissingError } from './buildLibrary.ts'

/**
 * The commit or tag of the previous release, in full: its library must work with the schema of this one, while a deployment rolls. A release
 * sets it to its own tag. `undefined`: there is none, and nothing is tested.
 */
const PREVIOUS_RELEASE: string | undefined = '5f888c39c86db468cc17fc9c7433e369e82c69ce'

/** The library of the previous release. Undefined where there is none, or where the clone does not have it, which CI=true allows a shallow one only. */
export function previousRelease(): BuiltLibrary | undefined {
  if (PREVIOUS_RELEASE === undefined) return undefined
  try {
    return buildLibrary(PREVIOUS_RELEASE)
  } catch (error) {
    if (!(error instanceof CommitMissingError) || (process.env['CI'] === 'true' && !error.inShallowClone)) throw error
    console.warn(`${error.message} SKIPPED: the previous release with this schema.`)
    return undefined
  }
}
