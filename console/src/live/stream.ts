import { batch, effect, signal } from '@preact/signals'
import type { DatabaseProblem, OverviewHistory, Snapshots, Tab } from 'pg-lockstep/console'
import { tab } from '../tab.ts'
import { ahead, compareClocks, now } from './clock.ts'
import { keep, keepOn, remember } from './figures.ts'
import { address, get, RequestRefusedError, refusalOf } from './request.ts'
import { meet } from './session.ts'

/** How we are connected. `away`: the server is there and its database is not. */
export type Connection = 'connecting' | 'live' | 'reconnecting' | 'away' | 'resting'

export const connection = signal<Connection>('connecting')

/** What the server said of its trouble. */
export const trouble = signal('')

/** What the server refused us with; '' where it did not answer at all. */
export const refusal = signal('')

/** When the next attempt is made, in our time. */
export const nextAttemptAt = signal<number | undefined>(undefined)

/** A snapshot, and when it came. */
export interface Received<T> {
  readonly snapshot: T
  readonly atMs: number
}

const TABS: readonly Tab[] = ['overview', 'locks', 'leases', 'outbox']

/** The newest of each kind. */
export const received = {
  overview: signal<Received<Snapshots['overview']> | undefined>(undefined),
  locks: signal<Received<Snapshots['locks']> | undefined>(undefined),
  leases: signal<Received<Snapshots['leases']> | undefined>(undefined),
  outbox: signal<Received<Snapshots['outbox']> | undefined>(undefined),
}

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 10_000
const SILENCE_MS = 15_000
const RESTS_AFTER_MS = 60_000

let source: EventSource | undefined
let timer: ReturnType<typeof setTimeout> | undefined
let attempts = 0
/** Which of several answers in progress is the one that counts. */
let turn = 0

/** Connects, and stays connected: through restarts of the server, whatever they do to the session. */
export async function connect(): Promise<void> {
  const mine = ++turn
  hangUp()
  nextAttemptAt.value = undefined
  try {
    const welcome = await meet()
    if (mine === turn && welcome) {
      listen()
      await rememberOnce()
    }
  } catch (error) {
    if (mine === turn) again(error)
  }
}

let remembered = false

/** Why charts do not begin with what Prometheus knows. */
export const historyTrouble = signal('')

/** The charts begin with what the server remembers. Without it they begin now. */
async function rememberOnce(): Promise<void> {
  if (remembered) return
  const history = await get<OverviewHistory>('api/history').catch(() => undefined)
  if (history === undefined || remembered) return
  remembered = true
  historyTrouble.value = history.trouble ?? ''
  remember(history.samples, ahead.peek())
}

function hangUp(): void {
  clearTimeout(timer)
  source?.close()
  source = undefined
}

function again(reason?: unknown): void {
  hangUp()
  refusal.value = reason instanceof RequestRefusedError && reason.problem.status !== 0 ? reason.message : ''
  if (connection.peek() !== 'connecting' || attempts > 0) connection.value = 'reconnecting'
  const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempts++)
  // Of many viewers not all come back at the same moment.
  const pauseMs = longest * (0.5 + Math.random() / 2)
  nextAttemptAt.value = Date.now() + pauseMs
  timer = setTimeout(() => void connect(), pauseMs)
}

/** The overview is always among it: the figures continue, and the tabs tell what needs attention. */
function shown(): string {
  return [...new Set(['overview', ...TABS.filter((each) => each === tab.peek())])].join(',')
}

function listen(): void {
  hangUp()
  const opened = new EventSource(address(`api/stream?show=${shown()}`))
  source = opened
  // A server that takes the connection and says nothing.
  timer = setTimeout(() => again(), SILENCE_MS)
  opened.addEventListener('error', () => {
    if (source !== opened) return
    again()
    // An EventSource does not say why: there may be too many viewers.
    void refusalOf(opened.url).then((reason) => {
      if (connection.peek() === 'reconnecting' && reason !== undefined) refusal.value = reason.message
    })
  })
  opened.addEventListener('trouble', (event: MessageEvent<string>) => {
    heard()
    trouble.value = (JSON.parse(event.data) as DatabaseProblem).message
    connection.value = 'away'
  })
  for (const each of TABS) {
    opened.addEventListener(each, (event: MessageEvent<string>) => {
      heard()
      receive(each, JSON.parse(event.data) as Snapshots[Tab])
    })
  }
}

function heard(): void {
  clearTimeout(timer)
  attempts = 0
}

function receive(name: Tab, snapshot: Snapshots[Tab]): void {
  batch(() => {
    connection.value = 'live'
    compareClocks(snapshot.at)
    const target = received[name] as { value: Received<Snapshots[Tab]> | undefined }
    target.value = { snapshot, atMs: Date.now() }
    if (name === 'overview') keep(snapshot as Snapshots['overview'])
  })
}

/** A page in the background is not seen: after a minute it lets the database rest. */
function restWhenHidden(): void {
  let resting: ReturnType<typeof setTimeout> | undefined
  document.addEventListener('visibilitychange', () => {
    clearTimeout(resting)
    if (document.hidden) {
      resting = setTimeout(() => {
        turn++
        hangUp()
        connection.value = 'resting'
      }, RESTS_AFTER_MS)
    } else if (connection.peek() === 'resting') {
      attempts = 0
      void connect()
    }
  })
}

/** To be called once. */
export function begin(): void {
  restWhenHidden()
  effect(() => {
    void now.value
    keepOn(connection.peek() === 'live')
  })
  let first = true
  effect(() => {
    void tab.value
    if (first) first = false
    else if (source !== undefined) listen()
  })
  void connect()
}
