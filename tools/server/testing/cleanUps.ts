import { afterEach } from 'vitest'

/**
 * Runs functions after the test that registered them, the last one first. Called at the top of a file, before other hooks that need what
 * the functions close.
 *
 * @example
 * const cleanUp = cleanUps()
 * cleanUp(() => pool.end())
 */
export function cleanUps(): (end: () => unknown) => void {
  const ends: (() => unknown)[] = []
  afterEach(async () => {
    for (const end of ends.splice(0).toReversed()) await end()
  })
  return (end) => void ends.push(end)
}
