import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { realpathSync } from 'node:fs'
import { get } from 'node:http'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { testDatabase } from '../tools/server/testDatabase.ts'
import { DeskProcess, processesOf } from './testing/deskProcess.ts'

const onLinux = process.platform === 'linux'
const run = promisify(execFile)

let place: string
let dataDir: string
const desks: DeskProcess[] = []

beforeAll(async () => {
  place = await mkdtemp(join(realpathSync(tmpdir()), 'lockstep-desktest-'))
  // As a checkout is: open for others to enter.
  await chmod(place, 0o755)
  dataDir = join(place, 'data')
})

afterAll(async () => {
  for (const desk of desks) desk.kill('SIGKILL')
  await vi.waitFor(() => expect(desks.flatMap((desk) => processesOf(desk, dataDir))).toEqual([]), { timeout: 60_000 })
  await rm(place, { recursive: true, force: true, maxRetries: 5 })
})

function start(args: readonly string[], env: NodeJS.ProcessEnv = {}): DeskProcess {
  const started = new DeskProcess(['--verbose', ...args], env)
  desks.push(started)
  return started
}

/** Called the moment it ends: nothing can be left to clean up afterwards. Its guard has a moment to notice. */
async function leavesNothing(ended: DeskProcess): Promise<void> {
  await expect.poll(() => processesOf(ended, dataDir)).toEqual([])
}

/** Where it answers, as soon as it says so. */
async function originOf(desk: DeskProcess): Promise<string> {
  await desk.hears('It runs until you press Ctrl-C.')
  return /start page +(\S+)\/$/m.exec(desk.said)?.[1] ?? ''
}

async function read<T>(url: string): Promise<T> {
  // A new connection each time. Otherwise all would reach the same process.
  const response = await fetch(url, { headers: { connection: 'close' } })
  return (await response.json()) as T
}

/** Each series, with its value; those of counters and histograms apart. */
async function metricsOf(origin: string): Promise<{ all: Map<string, number>; counted: [string, number][] }> {
  const text = await (await fetch(`${origin}/metrics`)).text()
  const counting = new Set([...text.matchAll(/^# TYPE (\S+) (?:counter|histogram)$/gm)].map(([, name]) => name))
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  const series = lines.map(
    (line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))] as const,
  )
  expect(new Set(series.map(([name]) => name)).size).toBe(series.length)
  const familyOf = (name: string): string => name.replace(/\{.*/, '').replace(/_(bucket|sum|count)$/, '')
  const counted = series.filter(([name]) => counting.has(familyOf(name)))
  return { all: new Map(series), counted: counted.map(([name, value]) => [name, value]) }
}

function processOf(series: string): string | undefined {
  return /[{,]process="([^"]+)"/.exec(series)?.[1]
}

/** Asks on a connection of its own, without a timeout, and resolves when there is an answer or the connection was closed. */
function settles(url: string): Promise<void> {
  return new Promise((resolve) => {
    get(url, { agent: false }, (response) => response.resume().on('close', resolve)).on('error', () => resolve())
  })
}

/** The commands of the guide, as printed there. */
async function examples(): Promise<string[]> {
  const guide = await readFile(new URL('../docs/guides/desk.md', import.meta.url), 'utf8')
  const section = /<!-- desk -->[^]*<!-- \/desk -->/.exec(guide)?.[0] ?? ''
  return section.split('\n').filter((line) => line.startsWith('curl '))
}

// One after the other, on one data directory: each start is also the proof that the end before it left it whole.
describe.sequential('the desk', () => {
  test('prints its usage, and what prevents a start', async () => {
    const nobody = 'postgres://postgres@127.0.0.1:1/nobody'
    const [help, wrong] = [start(['--help']), start(['--processes', '0'])]
    const lonely = start(['--port', '0'], { DATABASE_URL: nobody })
    expect(await help.ended()).toBe(0)
    expect(help.said).toMatch(/--processes N[^]*--port N[^]*--operator[^]*--data DIR/)
    expect(await wrong.ended()).toBe(2)
    expect(wrong.said).toBe('--processes must be a number from 1 to 64, not "0".\n')
    expect(await lonely.ended()).toBe(1)
    expect(lonely.said).toContain('No server answers at DATABASE_URL.')
  })

  test('leaves no process and a complete data directory when interrupted twice during initdb', async () => {
    const first = start(['--data', dataDir, '--port', '0'])
    await first.hears('Making a PostgreSQL')
    await expect.poll(() => readdir(place)).toEqual([expect.stringMatching(/^data\.init-/)])
    first.kill('SIGINT')
    first.kill('SIGINT')
    expect(await first.ended()).toBe(130)
    expect(first.said).toContain('Nothing is left running.')
    await leavesNothing(first)
    expect(await readdir(place)).toEqual(['data'])
  })

  test('answers the curl commands of the guide, rejects a second start, and finishes requests on Ctrl-C', async () => {
    const desk = start(['--data', dataDir, '--port', '0'])
    const origin = await originOf(desk)
    const commands = await examples()
    expect(commands.length).toBeGreaterThanOrEqual(5)
    for (const command of commands) {
      const { stdout } = await run('sh', ['-c', command.replaceAll('http://127.0.0.1:4800', origin)])
      const answer = JSON.parse(stdout) as Record<string, unknown>
      expect([command, answer]).toEqual([command, expect.not.objectContaining({ type: expect.anything() as unknown })])
    }
    // No terminal: no escape sequence. And its own traffic has come by.
    expect(desk.said).not.toContain('\u001B')
    await expect.poll(() => read(`${origin}/accounts/shop`)).toMatchObject({ hot: true })

    const second = start(['--data', dataDir, '--port', '0'])
    expect(await second.ended()).toBe(1)
    expect(second.said).toMatch(/is in use by process \d+; stop that first or give another data directory/)
    expect(second.said).not.toContain(' at ')

    const opening = fetch(`${origin}/positions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ symbol: 'LATE', side: 'long', quantity: 1 }),
    })
    await expect.poll(async () => (await fetch(`${origin}/positions/LATE`)).status).toBe(200)
    desk.kill('SIGINT')
    expect((await opening).status).toBe(201)
    expect(await desk.ended()).toBe(0)
    expect(desk.said).toContain('Stopped. Nothing is left running.')
    await leavesNothing(desk)
  }, 60_000)

  test.runIf(onLinux)('stops its server when it is killed, and finds the data on the next start', async () => {
    const desk = start(['--data', dataDir, '--port', '0', '--no-traffic'])
    const origin = await originOf(desk)
    expect(desk.said).toContain('Starting a PostgreSQL in')
    expect(await read(`${origin}/accounts/bob`)).toMatchObject({ balance: 100 })
    expect(processesOf(desk, dataDir).length).toBeGreaterThan(5)
    desk.kill('SIGKILL')
    await expect.poll(() => processesOf(desk, dataDir)).toEqual([])
  })
})

describe('the desk on DATABASE_URL', async () => {
  const database = await testDatabase({ leakGuard: false })
  const env = { DATABASE_URL: database.url }

  test('restarts a killed process of three, and ends all on SIGTERM', async () => {
    const desk = start(['--processes', '3', '--port', '0', '--no-traffic'], env)
    const origin = await originOf(desk)
    expect(desk.said).toContain('in 3 processes')
    const site = await fetch(`${origin}/console`)
    expect([site.status, await site.text()]).toEqual([200, expect.stringContaining('<html')])
    expect(new URL(site.url).port).not.toBe(new URL(origin).port)
    const seen = new Set<number>()
    // Several at once: the processes accept connections themselves, and one alone may take all that come one by one.
    const askPids = async (): Promise<void> => {
      const answers = await Promise.all(Array.from({ length: 6 }, () => read<{ pid: number }>(`${origin}/health`)))
      for (const { pid } of answers) seen.add(pid)
    }
    await expect.poll(() => askPids().then(() => seen.size)).toBe(3)
    const before = await metricsOf(origin)
    expect(new Set([...before.all.keys()].map(processOf))).toEqual(
      new Set(['desk-1', 'desk-2', 'desk-3', 'supervisor', undefined]),
    )
    const ofDatabase = [...before.all.keys()].filter((series) => processOf(series) === undefined)
    expect(ofDatabase.toSorted()).toEqual([
      'lockstep_outbox_lag_events{dispatcher="local"}',
      'lockstep_outbox_lag_seconds{dispatcher="local"}',
      'lockstep_outbox_parked_streams{dispatcher="local"}',
    ])
    // Stopped before it is killed, so that connections are on their way to it. These clients have no timeout: a connection that no process
    // answers or resets would keep its client waiting forever.
    const victim = [...seen][0] as number
    process.kill(victim, 'SIGSTOP')
    const waiting = new Set(Array.from({ length: 12 }, (_, index) => index))
    const clients = [...waiting].map((index) => settles(`${origin}/health`).then(() => waiting.delete(index)))
    await expect.poll(() => waiting.size).toBeLessThan(clients.length)
    process.kill(victim, 'SIGKILL')
    await desk.hears('ended with SIGKILL. It is started again in 200 ms.')
    await expect.poll(() => askPids().then(() => seen.size)).toBe(4)
    await expect.poll(() => waiting.size).toBe(0)
    const after = await metricsOf(origin)
    const fallen = before.counted.filter(([series, value]) => !((after.all.get(series) ?? 0) >= value))
    expect(before.counted.length).toBeGreaterThan(100)
    expect(fallen).toEqual([])
    const requests = [...after.all.keys()].filter((series) => series.startsWith('desk_request_seconds_count'))
    expect(new Set(requests.map(processOf))).toEqual(new Set(['desk-1', 'desk-2', 'desk-3']))
    await Promise.all(clients)
    desk.kill('SIGTERM')
    expect(await desk.ended()).toBe(0)
    await leavesNothing(desk)
  }, 120_000)

  test('works through its API without the page with --headless', async () => {
    const desk = start(['--headless', '--port', '0', '--no-traffic'], env)
    const origin = await originOf(desk)
    // The start page is the list of requests then.
    const list = await (await fetch(`${origin}/`)).text()
    expect(list).toContain('/positions')
    expect(list).not.toContain('/show/assets/')
    for (const path of ['/measured', '/show/assets/index.js']) {
      const { status, headers } = await fetch(origin + path)
      expect([path, status, headers.get('content-type')]).toEqual([path, 404, 'application/problem+json'])
    }
    const opened = await fetch(`${origin}/positions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ symbol: 'HEADLESS', side: 'long', quantity: 1 }),
    })
    expect(opened.status).toBe(201)
    expect(await read(`${origin}/positions/HEADLESS`)).toMatchObject({ symbol: 'HEADLESS' })
    // The race of the page that is not there.
    type Cards = { readonly cards: readonly { readonly card: string; readonly lockstep: { readonly done: number } }[] }
    expect(await read(`${origin}/show/cards`)).toMatchObject({ cards: [], texts: expect.any(Array) as unknown })
    const hammer = await fetch(`${origin}/show/cards/wallets/hammer`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ callers: 5, seconds: 60 }),
    })
    expect(hammer.status).toBe(202)
    const done = async (): Promise<number> => {
      const { cards } = await read<Cards>(`${origin}/show/cards`)
      return cards.find(({ card }) => card === 'wallets')?.lockstep.done ?? 0
    }
    await expect.poll(done).toBeGreaterThan(0)
    desk.kill('SIGTERM')
    expect(await desk.ended()).toBe(0)
    await leavesNothing(desk)
  }, 120_000)

  test('uses another port when the default is taken, and leaves no process when its supervisor is killed', async () => {
    // It may be taken already, by a desk on this machine: that is as good.
    const taken = createServer().listen(4800, '127.0.0.1')
    await once(taken, 'listening').catch(() => undefined)
    try {
      const [refused, guest] = [start(['--port', '4800'], env), start(['--processes', '2', '--no-traffic'], env)]
      expect(await refused.ended()).toBe(1)
      expect(refused.said).toContain('Port 4800 of 127.0.0.1 is taken. Give another with --port N')
      const origin = await originOf(guest)
      expect(guest.said).toMatch(
        /Using the database of DATABASE_URL[^]*Port 4800 is taken: the desk uses \d+ this time/,
      )
      expect(await read(`${origin}/ready`)).toMatchObject({ status: 'ready' })
      guest.kill('SIGKILL')
      await expect.poll(() => processesOf(guest, dataDir)).toEqual([])
    } finally {
      taken.close()
    }
  }, 60_000)
})
