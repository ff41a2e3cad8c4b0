import { setTimeout as sleep } from 'node:timers/promises'
import type { Lockstep, SplitShards } from '../index.ts'
import type { Call, Outcome } from './command.ts'
import { count, singleLine } from './formatting.ts'
import { parseNumber } from './parseValues.ts'
import { UsageError } from './usageError.ts'
import { userName } from './userName.ts'
import { withDatabase } from './withDatabase.ts'

/** How long it waits for processes to take the new shards. */
const WATCHED_MS = 10_000
const LOOK_MS = 200

/** Splits the shards of a dispatcher, and shows who has taken the new ones. */
export function split({ words: [, dispatcher], values }: Call, advice: string): Promise<Outcome> {
  const { reason } = values
  const preview = values.preview !== undefined
  if (dispatcher === undefined || dispatcher === '') throw new UsageError('No dispatcher was named.', advice)
  if (values.shards === undefined) throw new UsageError('--shards is missing.', advice)
  if (reason === undefined && !preview) throw new UsageError('--reason is missing.', advice)
  const shards = parseNumber('shards', values.shards)
  const who = { by: userName(), ...(reason === undefined ? {} : { reason }) }
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const found = await lockstep.outbox.split(dispatcher, { shards, preview, ...who })
    const ownedNow = preview ? found.owned : await ownersOf(lockstep, dispatcher, found)
    return {
      exitCode: 0,
      json: { ok: true, command: 'outbox split', schema: lockstep.schema, dispatcher, preview, ...found, ownedNow },
      text: () => (preview ? previewed(singleLine(dispatcher), found) : done(singleLine(dispatcher), found, ownedNow)),
    }
  })
}

/** How many of the new shards are owned: when all are, or after a while. */
async function ownersOf(lockstep: Lockstep, dispatcher: string, { owned, to }: SplitShards): Promise<number> {
  const until = performance.now() + (owned > 0 ? WATCHED_MS : 0)
  for (;;) {
    const held = await lockstep.leases.list({ prefix: `Outbox:${dispatcher}:shard:`, limit: to })
    if (held.length >= to || performance.now() >= until) return held.length
    await sleep(LOOK_MS)
  }
}

function previewed(dispatcher: string, { from, to, owned, parkedStreams }: SplitShards): string {
  return `${count(from, 'shard')} of ${dispatcher} would become ${to}; ${owned} are owned now. ${count(parkedStreams, 'stream')} that wait would follow.
Nothing was changed. Run it again without --preview and with --reason.`
}

function done(dispatcher: string, { from, to, owned, notReleased }: SplitShards, ownedNow: number): string {
  const late =
    notReleased === 0
      ? ''
      : `\nThe owners of ${count(notReleased, 'shard')} did not release them in time. Their current batches can be delivered twice. The parts of these shards continue when their leases have ended.`
  const now =
    owned === 0
      ? 'No process runs it now: the next one takes them.'
      : `${ownedNow} of them are owned now${ownedNow < to ? ': look at `pg-lockstep outbox status`' : ''}.`
  return `${count(from, 'shard')} of ${dispatcher} became ${to}. ${now}${late}`
}
