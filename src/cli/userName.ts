import { userInfo } from 'node:os'

/** The user of this terminal. In a container the user id may have no name. */
export function userName(): string {
  try {
    return userInfo().username
  } catch {
    return process.env['USER'] || 'unknown'
  }
}
