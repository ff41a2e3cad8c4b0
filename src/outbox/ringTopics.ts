/** The maximum size of the names in one ring. With more, the ring means all topics. */
const MOST_LETTERS = 400

/** The topics that have new events; undefined: any. */
export type RingTopics = ReadonlySet<string> | undefined

/** As a part of a ring, without spaces. */
export function writeTopics(topics: RingTopics): string {
  if (topics === undefined) return ''
  const text = [...topics].map(encodeURIComponent).join()
  return text.length > MOST_LETTERS ? '' : ` t:${text}`
}

export function readTopics(text: string | undefined): RingTopics {
  if (text === undefined) return undefined
  try {
    return new Set(text.split(',').map(decodeURIComponent))
  } catch {
    return undefined
  }
}

/** Whether a dispatcher with this list of topics wants one of them. As `outbox_topic_patterns()`. */
export function wantsAny(list: readonly string[] | null, topics: RingTopics): boolean {
  if (list === null || topics === undefined) return true
  for (const topic of topics) {
    if (list.some((name) => (name.endsWith('*') ? topic.startsWith(name.slice(0, -1)) : topic === name))) return true
  }
  return false
}
