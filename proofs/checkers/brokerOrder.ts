/** What a broker has of a topic. */
export interface BrokerReport {
  readonly messages: number
  /** First deliveries. */
  readonly events: number
  /** Messages that were there already. */
  readonly again: number
  /** Those of them that stand behind a later number of their key. */
  readonly late: number
  /** First deliveries behind a later one of their key. */
  readonly inversions: number
  /** Numbers that are missing before one that is there. */
  readonly gaps: number
  /** Numbers that are there with two ids. */
  readonly diverged: number
}

/** Reads what a broker has, in its order within each key. */
export function orderAtBroker(
  received: readonly { readonly key: string; readonly seq: number; readonly id: string }[],
): BrokerReport {
  const keys = new Map<string, { last: number; readonly ids: Map<number, string> }>()
  let [again, late, inversions, diverged] = [0, 0, 0, 0]
  for (const { key, seq, id } of received) {
    const stream = keys.get(key) ?? { last: 0, ids: new Map<number, string>() }
    keys.set(key, stream)
    const known = stream.ids.get(seq)
    if (known === undefined) {
      stream.ids.set(seq, id)
      if (seq < stream.last) inversions++
    } else if (known !== id) diverged++
    else {
      again++
      if (seq < stream.last) late++
    }
    stream.last = Math.max(stream.last, seq)
  }
  let [events, gaps] = [0, 0]
  for (const { last, ids } of keys.values()) {
    events += ids.size
    gaps += last - ids.size
  }
  return { messages: received.length, events, again, late, inversions, gaps, diverged }
}
