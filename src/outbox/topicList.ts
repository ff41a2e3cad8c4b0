import { InvalidOptionError } from '../errors.ts'

const MOST_TOPICS = 64
const MOST_BYTES = 1000

/** Each once and in one order: two processes that name the same topics have the same list. Null: all topics. */
export function checkTopics(given: readonly string[] | undefined): readonly string[] | null {
  if (given === undefined) return null
  const list = Array.isArray(given) ? [...new Set<unknown>(given)] : []
  if (list.length === 0 || list.length > MOST_TOPICS || !list.every(isPattern)) {
    throw new InvalidOptionError(`topics is ${JSON.stringify(given) ?? String(given)}.`, {
      advice: `Name 1 to ${MOST_TOPICS} topics, such as ['trades', 'orders.*']; a star can stand at the end only. Leave it out for all topics.`,
    })
  }
  return list.toSorted()
}

function isPattern(topic: unknown): topic is string {
  if (typeof topic !== 'string' || topic === '' || topic.includes('\0') || !topic.isWellFormed()) return false
  return Buffer.byteLength(topic) <= MOST_BYTES && !topic.slice(0, -1).includes('*')
}
