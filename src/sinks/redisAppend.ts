import { createHash } from 'node:crypto'
import type { Delivery, OutboxEvent } from '../outbox/index.ts'
import { HEADERS } from './message.ts'

/** The field of an entry that holds the event's body. All others are headers. */
export const BODY = 'lockstep-body'

/**
 * Appends events of one stream, in order, each only right behind the one before it. Says how many are there now, and what stopped it.
 *
 * What the last number is, it learns in three steps, each only where the one before does not fit. First the number of entries: ids are
 * whole numbers that only grow, so the last one is not below it, and XADD itself refuses an id that is not above the last one; where
 * both agree to the event, it comes right behind the last. Then the last entry, for a stream that was trimmed at its beginning. Then the
 * stream's own memory: the last id ever given outlives its entry, in a stream that was trimmed to nothing, and in one whose last entry
 * was deleted. (With the last entry as the first step, an event alone in its call took 20 µs of the server instead of 15.)
 * What stands at or below the last number and is not there any more was trimmed: every number was appended behind the one before it. Unless it is
 * of a later generation than an entry above it, or than the last number: then its number was assigned again.
 *
 * The stream remembers the generation of its last number without any entry: the second half of the last id ever given (XSETID) is the generation,
 * where that is not the first. Ids of entries are `seq-0` all the same, and the next one is above it.
 *
 * One key, so that a cluster runs it; nothing that differs between two runs, so that replicas agree.
 */
export const SCRIPT = `
local stream, first, limit = KEYS[1], ARGV[1], ARGV[2]
local sent, at, step = 0, 3, 0
local appended, generation

local function failed(reply) return type(reply) == 'table' and reply.err end
local function says(...) return table.concat({ string.format('%.0f', sent), ... }, ' ') end
local function number(id) return tonumber(string.match(id, '^%d+')) end
local function begins(seq) return first == 'anywhere' or tonumber(first) == seq end
local function field(name, fields, from, to)
  for i = from, to, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end
local function uuid(entry) return field('${HEADERS.id}', entry[2], 1, #entry[2]) end

local last = redis.pcall('XLEN', stream)
if failed(last) then return says('error', last.err) end

-- The last number ever given, and its generation.
local function ever()
  local info = redis.pcall('XINFO', 'STREAM', stream)
  if failed(info) then return nil, nil, info.err end
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      return number(info[i + 1]), math.max(1, tonumber(string.match(info[i + 1], '%d+$')))
    end
  end
end

local function learn()
  step = step + 1
  if step == 1 then
    local top = redis.pcall('XREVRANGE', stream, '+', '-', 'COUNT', 1)
    if failed(top) then return says('error', top.err) end
    if top[1] and not uuid(top[1]) then return says('foreign', top[1][1]) end
    last = top[1] and number(top[1][1]) or 0
  elseif redis.call('EXISTS', stream) == 1 then
    local given, _, err = ever()
    if err then return says('error', err) end
    last = given or last
  end
end

local function append()
  while at <= #ARGV do
    local seq, id, count = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
    while step < 2 and not (last == seq - 1 and (last > 0 or begins(1))) do
      local stopped = learn()
      if stopped then return stopped end
    end
    local done = true
    if seq <= last then
      local there = redis.pcall('XRANGE', stream, ARGV[at] .. '-0', ARGV[at] .. '-0')
      if failed(there) then return says('error', there.err) end
      if there[1] and uuid(there[1]) ~= id then return says('diverged', tostring(uuid(there[1]))) end
      if not there[1] then
        -- Trimmed, or assigned again: numbers of one history are not of a later generation than those above them.
        local top = redis.pcall('XREVRANGE', stream, '+', '-', 'COUNT', 1)
        if failed(top) then return says('error', top.err) end
        local known = top[1] and number(top[1][1]) > seq and tonumber(field('${HEADERS.generation}', top[1][2], 1, #top[1][2]) or '')
        local mine = tonumber(field('${HEADERS.generation}', ARGV, at + 3, at + 2 + count) or '')
        if known and mine and mine > known then return says('diverged', 'trimmed') end
        local _, latest, err = ever()
        if err then return says('error', err) end
        if latest and mine and mine > latest then return says('diverged', 'trimmed') end
      end
    elseif last == 0 and not begins(seq) then
      return says('empty')
    elseif last > 0 and last ~= seq - 1 then
      return says('gap', string.format('%.0f', last))
    else
      local added
      if limit == '' then
        added = redis.pcall('XADD', stream, ARGV[at] .. '-0', unpack(ARGV, at + 3, at + 2 + count))
      else
        added = redis.pcall('XADD', stream, 'MAXLEN', '~', limit, ARGV[at] .. '-0', unpack(ARGV, at + 3, at + 2 + count))
      end
      if not failed(added) then
        last, appended = seq, seq
        generation = tonumber(field('${HEADERS.generation}', ARGV, at + 3, at + 2 + count) or '')
      elseif step == 2 then
        return says('error', added.err)
      else
        -- Its number may have been given before.
        local stopped = learn()
        if stopped then return stopped end
        done = false
      end
    end
    if done then
      sent = sent + 1
      at = at + 3 + count
    end
  end
  return says()
end

local answer = append()
-- A server that does not permit it has the entries all the same.
if appended and generation and generation > 1 then
  redis.pcall('XSETID', stream, string.format('%.0f-%.0f', appended, generation))
end
return answer
`

export const SHA = createHash('sha1').update(SCRIPT).digest('hex')

/** What the script says: how many of its events are there, and what stopped it. */
export interface Verdict {
  readonly sent: number
  readonly stop?: { readonly kind: string; readonly detail: string }
}

export function readVerdict(reply: unknown): Verdict | undefined {
  const [, sent, kind, detail = ''] = /^(\d+)(?: (\w+)(?: ([^]*))?)?$/.exec(String(reply)) ?? []
  if (sent === undefined) return undefined
  return kind === undefined ? { sent: Number(sent) } : { sent: Number(sent), stop: { kind, detail } }
}

/** What it means for the event at which the script stopped. */
export function deliveryOf(
  { kind, detail }: NonNullable<Verdict['stop']>,
  event: OutboxEvent,
  name: string,
  start: string,
): Delivery {
  const stream = `The Redis stream ${name}`
  const here = `topic ${event.topic}, key ${event.key}`
  switch (kind) {
    case 'gap':
      return {
        refused: `${stream} ends with #${detail}: #${event.seq} would leave a gap. Entries that Redis had confirmed were lost, by a failover or a restart without its file. Send them again with outbox.replay() from #${Number(detail) + 1} on (${here}), then retry the stream.`,
      }
    case 'empty':
      return {
        refused: `${stream} is empty, and begins with #${start}, not with #${event.seq}. Was it deleted or evicted? Send it again with outbox.replay() (${here}), or let it begin here with the sink's option start; then retry the stream.`,
      }
    case 'diverged':
      return {
        refused: `${stream} had another event as #${event.seq}: its id is ${detail}, not ${event.id}. The history there is not this database's: was it restored? Rename the Redis stream away as a whole and send it again with outbox.replay(), or let it begin here with the sink's option start (${here}); then retry the stream.`,
      }
    case 'foreign':
      return {
        refused: `${stream} ends with ${detail}, which no Lockstep has written. Give the sink names of its own with its option stream (${here}).`,
      }
    default:
      return failureOf(detail, name, event)
  }
}

/** An error of Redis's. Only what is stored under the name is the event's own trouble; all else passes, or hits everything. */
function failureOf(error: string, name: string, event: OutboxEvent): Delivery {
  if (!error.startsWith('WRONGTYPE')) return { unknown: `Redis: ${error}` }
  return {
    refused: `The Redis key ${name} holds something else than a stream, so #${event.seq} has no place. Give the sink names of its own with its option stream.`,
  }
}
