import type { Stream } from '../events/index.ts'
import { groupOf } from './streamLocks.ts'

/** Groups of buckets, a bit for each of 64. */
export type Groups = bigint

export const ALL_GROUPS: Groups = (1n << 64n) - 1n
const COUNT = 64

export function groupsOf(schema: string, streams: readonly Stream[]): Groups {
  let groups = 0n
  for (const stream of streams) groups |= 1n << BigInt(groupOf(schema, stream))
  return groups
}

/** The shards that have one of these groups. */
export function shardsOf(groups: Groups, shards: number): number[] {
  // Up to 64 shards have whole groups; more of them share one.
  const each = Math.max(1, COUNT / shards)
  const mask = (1n << BigInt(each)) - 1n
  return Array.from({ length: shards }, (_, shard) => shard).filter(
    (shard) => (groups & (mask << BigInt(Math.floor((shard * COUNT) / shards)))) !== 0n,
  )
}

/** As text in a bell: what cannot be read means all. */
export function writeGroups(groups: Groups): string {
  return groups.toString(16).padStart(COUNT / 4, '0')
}

export function readGroups(text: string | undefined): Groups {
  return text !== undefined && /^[0-9a-f]{16}$/.test(text) ? BigInt(`0x${text}`) : ALL_GROUPS
}
