/**
 * What is needed of a Kafka client: the shape that kafkajs and @confluentinc/kafka-javascript share. Neither `acks` nor `timeout` is
 * given with a batch: the second refuses them there. Both confirm by all replicas unless they are configured otherwise.
 */

/** One message; clients may write into it. */
export interface KafkaMessage {
  key: string
  value: Buffer
  headers: Record<string, string>
}

/** Messages for one topic, in order. */
export interface KafkaTopicMessages {
  topic: string
  messages: KafkaMessage[]
}

/** What takes messages: a producer, or a transaction of one. */
export interface KafkaProducer {
  sendBatch(batch: { topicMessages: KafkaTopicMessages[] }): Promise<unknown>
}

/** An open transaction. */
export interface KafkaTransaction extends KafkaProducer {
  commit(): Promise<void>
  abort(): Promise<void>
}

/** A producer with a transactional id, not yet connected. */
export interface KafkaTransactionalProducer {
  connect(): Promise<void>
  disconnect(): Promise<void>
  transaction(): Promise<KafkaTransaction>
}

/** Asked whether Kafka can be reached. */
export interface KafkaAdmin {
  listTopics(): Promise<unknown>
}

/** Whose fault a failed request is. */
export type KafkaFault = 'event' | 'topic' | 'fenced' | 'unclear'

// Kafka's own numbers, which both clients carry in `code`; below zero librdkafka's.
const FAULTS = new Map<number, KafkaFault>([
  [10, 'event'], // MESSAGE_TOO_LARGE
  [18, 'event'], // RECORD_LIST_TOO_LARGE
  [32, 'event'], // INVALID_TIMESTAMP
  [87, 'event'], // INVALID_RECORD
  [3, 'topic'], // UNKNOWN_TOPIC_OR_PARTITION
  [17, 'topic'], // INVALID_TOPIC_EXCEPTION
  [29, 'topic'], // TOPIC_AUTHORIZATION_FAILED
  [-188, 'topic'], // unknown topic
  [47, 'fenced'], // INVALID_PRODUCER_EPOCH
  [90, 'fenced'], // PRODUCER_FENCED
  [-144, 'fenced'], // fenced
])
/** An error wraps another, which may wrap a third. */
const DEEPEST_CAUSE = 5

/** Reads the client's error, and what it wraps. */
export function faultOf(error: unknown): KafkaFault {
  let at = error
  for (let depth = 0; depth < DEEPEST_CAUSE && typeof at === 'object' && at !== null; depth++) {
    const { code, cause } = at as { readonly code?: unknown; readonly cause?: unknown }
    const fault = typeof code === 'number' ? FAULTS.get(code) : undefined
    if (fault !== undefined) return fault
    at = cause
  }
  return 'unclear'
}
