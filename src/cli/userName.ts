import { userInfo } from 'node:os'

/** Who sits here. In a container there may be nobody of that number. */
export function userName(): string {
  try {
    return userInfo().username
  } catch {
    return process.env['USER'] || 'unknown'
  }
}
