import { type Finding, LockstepError } from '../index.ts'
import { KNOWN_VERSION } from '../postgres/index.ts'
import type { Call, Command, Outcome } from './command.ts'
import { databaseUrl } from './databaseUrl.ts'
import { isOfServer } from './doctor.ts'
import { deliveryOf, type OutboxTotals, totalsOf } from './outboxStatus.ts'
import { table } from './table.ts'
import type { Colour, Terminal } from './terminal.ts'
import { refreshEverySecond } from './refreshEverySecond.ts'
import { type Database, withDatabase } from './withDatabase.ts'
import { count, formatAge } from './formatting.ts'

/** While it is watched, the doctor comes this often: it asks much, and what it finds hardly changes. */
const DOCTOR_EVERY_MS = 30_000
/** As many leases as are counted. */
const MOST_LEASES = 10_000
/** A session that keeps others waiting for longer than this is worth a look. */
const LONG_HOLD_MS = 5_000
/** What is behind by more than this is worth a look. */
const LONG_LAG_MS = 60_000

export const statusCommand: Command = {
  name: 'status',
  summary: 'Show server, schema, locks, leases and the outbox in a few lines. The default',
  usage: '[--watch]',
  details: `Shows the state in a few lines, and which command shows more. It changes nothing. The exit code is 1 if the doctor finds
a broken guarantee.`,
  examples: [
    { line: 'pg-lockstep', does: 'status of the database in DATABASE_URL' },
    { line: 'pg-lockstep --url postgres://app@db/app', does: 'status of another database' },
    { line: 'pg-lockstep status --watch', does: 'refresh every second' },
    { line: 'pg-lockstep status --json', does: 'for programs: .outbox.lagMs, .locks.waiters' },
  ],
  options: ['url', 'schema', 'driver', 'watch', 'json'],
  words: [],
  run({ values }) {
    return withDatabase(values, (database) => look(database, values, doctorOf(database)))
  },
  watch({ values }, show, stop) {
    return withDatabase(values, (database) => {
      const doctor = doctorOf(database)
      return refreshEverySecond(() => look(database, values, doctor), show, stop)
    })
  },
}

type Doctor = () => Promise<Finding[]>

/** A doctor that comes now and then, and is quoted meanwhile. */
function doctorOf({ lockstep }: Database): Doctor {
  let seenAt = -Infinity
  let findings: Finding[] = []
  return async () => {
    if (performance.now() - seenAt < DOCTOR_EVERY_MS) return findings
    // The pool that it sees is this program's own, and says nothing of the application's.
    // The trial has a command of its own; what is not tried yet, the questions below try.
    findings = (await lockstep.doctor({ trial: false })).filter(isOfServer)
    seenAt = performance.now()
    return findings
  }
}

/** A part that could be looked at, or why not. */
type Part<T> = { readonly seen: T } | { readonly refused: string }

async function part<T>(ask: () => Promise<T>): Promise<Part<T>> {
  try {
    return { seen: await ask() }
  } catch (error) {
    // Without a schema there is still something to say.
    if (error instanceof LockstepError) return { refused: error.message.replace(` ${error.advice}`, '') }
    throw error
  }
}

interface LockTotals {
  readonly held: number
  readonly waiters: number
  /** How long the longest transaction is open that others wait for. */
  readonly blockedByMs: number
}

interface LeaseTotals {
  readonly held: number
  readonly waiters: number
}

async function locksOf({ lockstep }: Database): Promise<LockTotals> {
  const { locks } = await lockstep.locks.list()
  const contested = locks.filter(({ waiters }) => waiters.length > 0)
  return {
    held: locks.filter(({ holders }) => holders.length > 0).length,
    waiters: contested.reduce((sum, { waiters }) => sum + waiters.length, 0),
    blockedByMs: Math.max(0, ...contested.flatMap(({ holders }) => holders.map(({ heldForMs }) => heldForMs ?? 0))),
  }
}

async function leasesOf({ lockstep }: Database): Promise<LeaseTotals> {
  const leases = await lockstep.leases.list({ limit: MOST_LEASES })
  return {
    held: leases.reduce((sum, { holders }) => sum + holders.length, 0),
    waiters: leases.reduce((sum, { waiters }) => sum + waiters.length, 0),
  }
}

interface Seen {
  readonly place: string
  readonly findings: readonly Finding[]
  readonly locks: Part<LockTotals>
  readonly leases: Part<LeaseTotals>
  readonly outbox: Part<OutboxTotals>
}

async function look(database: Database, values: Call['values'], doctor: Doctor): Promise<Outcome> {
  const { lockstep, driver } = database
  const url = new URL(databaseUrl(values.url))
  const findings = await doctor()
  const seen: Seen = {
    place: `${url.host === '' ? 'a local socket' : url.host}, database ${decodeURIComponent(url.pathname.slice(1)) || '?'}`,
    findings,
    locks: await part(() => locksOf(database)),
    leases: await part(() => leasesOf(database)),
    outbox: await part(async () => totalsOf(await lockstep.outbox.status())),
  }
  const ok = findings.every(({ level }) => level !== 'fail')
  return {
    exitCode: ok ? 0 : 1,
    json: {
      ok,
      command: 'status',
      schema: lockstep.schema,
      driver,
      at: new Date().toISOString(),
      ...forPrograms(seen),
    },
    text: (terminal) => report(seen, terminal),
  }
}

function forPrograms({ findings, locks, leases, outbox }: Seen): Readonly<Record<string, unknown>> {
  const seenIn = (each: Part<object>): object | null => ('seen' in each ? each.seen : null)
  return {
    server: foundBy(findings, 'server version')?.found ?? null,
    schemaVersion: foundBy(findings, 'schema')?.level === 'ok' ? KNOWN_VERSION : null,
    doctor: { level: worstOf(findings), findings: findings.filter(({ level }) => level !== 'ok') },
    locks: seenIn(locks),
    leases: seenIn(leases),
    outbox: seenIn(outbox),
  }
}

type Level = Finding['level']

const COLOURS: Readonly<Record<Level, Colour>> = { ok: 'green', warn: 'yellow', fail: 'red' }
const GRAVITY: readonly Level[] = ['fail', 'warn', 'ok']

function worstOf(findings: readonly Finding[]): Level {
  return GRAVITY.find((level) => findings.some((finding) => finding.level === level)) ?? 'ok'
}

function foundBy(findings: readonly Finding[], name: string): Finding | undefined {
  return findings.find((finding) => finding.name === name)
}

/** One line of the status, and where there is more to say. */
interface Line {
  readonly level: Level
  readonly about: string
  readonly says: string
  readonly more: string
}

function report(seen: Seen, { columns, paint }: Terminal): string {
  const rows = linesOf(seen).flatMap(({ level, about, says, more }) => {
    const row = [paint(COLOURS[level], level.padEnd(4)), about, says]
    return level === 'ok' ? [row] : [row, ['', '', `→ ${more}`]]
  })
  return `${table(rows, columns)}\n\n${paint('dim', 'More: pg-lockstep locks, leases, outbox, doctor, console, help.')}`
}

function linesOf({ place, findings, locks, leases, outbox }: Seen): Line[] {
  const server = foundBy(findings, 'server version')
  const schema = foundBy(findings, 'schema')
  const lines: Line[] = [
    {
      level: server?.level ?? 'ok',
      about: 'server',
      says: `${server?.found ?? 'PostgreSQL'} at ${place}`,
      more: server?.advice ?? '',
    },
    {
      level: schema?.level ?? 'ok',
      about: 'schema',
      says: schema?.found ?? 'not looked at',
      more: schema?.advice ?? '',
    },
    { level: worstOf(findings), about: 'doctor', says: verdictOn(findings), more: 'pg-lockstep doctor' },
  ]
  const add = <T>(about: string, seen: Part<T>, tell: (seen: T) => Omit<Line, 'about'>): void => {
    if ('seen' in seen) lines.push({ about, ...tell(seen.seen) })
    // What lacks its schema need not say so once more.
    else if (seen.refused !== schema?.found)
      lines.push({ about, level: 'fail', says: seen.refused, more: 'pg-lockstep doctor' })
  }
  add('locks', locks, ({ held, waiters, blockedByMs }) => ({
    level: blockedByMs > LONG_HOLD_MS ? 'warn' : 'ok',
    says:
      `${held} held, ${count(waiters, 'waiter')}` +
      (waiters === 0 ? '' : `; the longest transaction in the way is open for ${formatAge(blockedByMs)}`),
    more: 'pg-lockstep locks',
  }))
  add('leases', leases, ({ held, waiters }) => ({
    level: 'ok',
    says: `${held} held, ${count(waiters, 'waiter')}`,
    more: 'pg-lockstep leases',
  }))
  add('outbox', outbox, (totals) => ({
    level: totals.ownerless > 0 || totals.parkedStreams > 0 || totals.lagMs > LONG_LAG_MS ? 'warn' : 'ok',
    says: totals.shards === 0 ? 'no dispatcher has run yet' : deliveryOf(totals),
    more: totals.parkedStreams > 0 ? 'pg-lockstep outbox parked' : 'pg-lockstep outbox',
  }))
  return lines
}

/** The worst of what the doctor found, and how much else there is. */
function verdictOn(findings: readonly Finding[]): string {
  const failed = findings.filter(({ level }) => level === 'fail')
  const warned = findings.filter(({ level }) => level === 'warn')
  const rest = (others: number): string => (others === 0 ? '' : `; ${others} more to look at`)
  if (failed.length > 0) {
    const names = failed.map(({ name }) => name).join(', ')
    return `${failed.length} of ${findings.length} checks failed: ${names}${rest(warned.length)}`
  }
  const [worst] = warned
  if (worst === undefined) return `${findings.length} checks: Lockstep can keep every guarantee here`
  return `${worst.name}: ${worst.found}${rest(warned.length - 1)}`
}
