import type { Stream } from '../events/index.ts'
import { ALL_GROUPS, type Groups, groupsOf } from './groups.ts'
import type { RingTopics } from './ringTopics.ts'

/** Of more streams than that a ring stands for all groups: to hash each costs as much as the rest of what is done after COMMIT. */
const MOST_HASHED = 16
/** A transaction with more events than that stands for all groups and all topics. */
const MOST_AT_ONCE = 100
const MOST_TOPICS = 100
/** A ring for fewer events than that: dispatchers may find none of the next ones by themselves. */
const DENSE = 8
/** Of so many streams of one topic every dispatcher of the topic has some. */
const SPREAD = 8
/** Of one stream: its dispatcher looks all the time then, as DENSE_EVENTS in reader.ts has it. */
const HOT = 4

/** What a ring stands for: the events that were committed since the one before. */
export class RingContents {
  #events = 0
  /** How many events each stream has, by topic. Of a topic, no more streams are counted than can be hashed. */
  readonly #topics = new Map<string, Map<string, number>>()
  #streams = 0
  #ofAllGroups = false
  #ofAllTopics = false

  get isEmpty(): boolean {
    return this.#events === 0
  }

  add(streams: readonly Stream[]): void {
    this.#events += streams.length
    if (streams.length > MOST_AT_ONCE) this.#ofAllGroups = this.#ofAllTopics = true
    else for (const { topic, key } of streams) this.#addOne(topic, key)
  }

  #addOne(topic: string, key: string): void {
    let keys = this.#topics.get(topic)
    if (keys === undefined) {
      if (this.#topics.size >= MOST_TOPICS) {
        this.#ofAllGroups = this.#ofAllTopics = true
        return
      }
      keys = new Map()
      this.#topics.set(topic, keys)
    }
    const count = keys.get(key)
    if (count === undefined && ++this.#streams > MOST_HASHED) this.#ofAllGroups = true
    if (count !== undefined || keys.size < MOST_HASHED) keys.set(key, (count ?? 0) + 1)
  }

  /** The ring failed, and the next one stands for its events as well. */
  addFailed(failed: RingContents): void {
    this.#events += failed.#events
    this.#ofAllGroups = true
    this.#ofAllTopics ||= failed.#ofAllTopics
    for (const topic of failed.#topics.keys()) if (!this.#topics.has(topic)) this.#topics.set(topic, new Map())
  }

  groups(schema: string): Groups {
    if (this.#ofAllGroups) return ALL_GROUPS
    return groupsOf(
      schema,
      [...this.#topics].flatMap(([topic, keys]) => [...keys.keys()].map((key) => ({ topic, key }))),
    )
  }

  get topics(): RingTopics {
    return this.#ofAllTopics ? undefined : new Set(this.#topics.keys())
  }

  /**
   * Whether dispatchers find the next events of these streams by looking, because of what they found after this ring. Those of other topics, or
   * of other streams, found nothing then, and look rarely.
   */
  leadsTo(streams: readonly Stream[]): boolean {
    return streams.length <= MOST_AT_ONCE && streams.every(({ topic, key }) => this.#leadsTo(topic, key))
  }

  #leadsTo(topic: string, key: string): boolean {
    const keys = this.#topics.get(topic)
    if (keys === undefined || this.#events < DENSE) return false
    return keys.size >= SPREAD || (keys.get(key) ?? 0) >= HOT
  }

  /** The same for all that another one stands for. */
  leadsToAll(next: RingContents): boolean {
    if (next.#ofAllTopics || this.#events < DENSE) return false
    for (const [topic, keys] of next.#topics) {
      for (const key of keys.keys()) if (!this.#leadsTo(topic, key)) return false
    }
    return true
  }
}
