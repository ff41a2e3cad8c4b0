import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises'
import { realpathSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { testDatabase } from '../tools/server/testDatabase.ts'
import { DeskProcess, processesOf } from './testing/deskProcess.ts'

const small = ['--rounds', '1', '--increments', '25']
const onLinux = process.platform === 'linux'

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
  await vi.waitFor(() => expect(desks.flatMap((desk) => processesOf(desk, dataDir))).toEqual([]), { timeout: 8_000 })
  await rm(place, { recursive: true, force: true, maxRetries: 5 })
})

function start(args: readonly string[], env: NodeJS.ProcessEnv = {}): DeskProcess {
  const started = new DeskProcess(args, env)
  desks.push(started)
  return started
}

/** Asked at the very moment of its end: nothing may be left to tidy up behind its back. Its guard has a moment to notice. */
async function leavesNothing(ended: DeskProcess): Promise<void> {
  await vi.waitFor(() => expect(processesOf(ended, dataDir)).toEqual([]), { timeout: 1_000, interval: 10 })
}

/** The numbers of one row of the result table: confirmed, in the wallet, lost, failed, a second. */
function row(said: string, title: string): number[] {
  const line = said.split('\n').find((each) => each.startsWith(title)) ?? ''
  return line.slice(title.length).trim().split(/\s+/).map(Number)
}

// One after the other, on one data directory: each start is also the proof that the end before it left it whole.
describe.sequential('the desk', () => {
  test('says how it is used', async () => {
    const [help, wrong, unknown] = [start(['--help']), start(['--rounds', '0']), start(['--sometimes'])]
    expect(await help.ended()).toBe(0)
    expect(help.said).toMatch(/--rounds N[^]*--increments N[^]*--once[^]*--data DIR/)
    expect(await wrong.ended()).toBe(2)
    expect(wrong.said).toBe('--rounds must be a number from 1 to 1000, not "0".\n')
    expect(await unknown.ended()).toBe(2)
    expect(unknown.said).toContain("Unknown option '--sometimes'")
  })

  test('interrupted twice while initdb runs, it ends with nothing running and a whole data directory', async () => {
    const first = start(['--data', dataDir, ...small])
    await first.hears('Making a PostgreSQL')
    await vi.waitFor(async () => expect(await readdir(place)).toEqual([expect.stringMatching(/^data\.init-/)]), {
      timeout: 5_000,
      interval: 5,
    })
    first.kill('SIGINT')
    first.kill('SIGINT')
    expect(await first.ended()).toBe(130)
    expect(first.said).toContain('Nothing is left running.')
    await leavesNothing(first)
    expect(await readdir(place)).toEqual(['data'])
  })

  test.each([
    ['SIGTERM', 'PostgreSQL is up', 143],
    ['SIGINT', 'come to the start', 130],
    ['SIGINT', '1. READ COMMITTED', 130],
  ] as const)('%s at "%s" ends it with nothing running', async (name, moment, exitCode) => {
    const interrupted = start(['--data', dataDir, '--rounds', '100'])
    await interrupted.hears(moment)
    interrupted.kill(name)
    expect(await interrupted.ended()).toBe(exitCode)
    await leavesNothing(interrupted)
  })

  test.runIf(onLinux)('killed in the middle of a race, it takes racers, server and guard along', async () => {
    const killed = start(['--data', dataDir, '--rounds', '100'])
    await killed.hears('round 1:')
    expect(processesOf(killed, dataDir).length).toBeGreaterThan(5)
    killed.kill('SIGKILL')
    await vi.waitFor(() => expect(processesOf(killed, dataDir)).toEqual([]), { timeout: 8_000 })
  })

  test('shows real races, then keeps its server until Ctrl-C', async () => {
    const shown = start(['--data', dataDir, '--rounds', '2', '--increments', '50'])
    await shown.hears('until you press Ctrl-C')
    const { said } = shown
    for (const title of ['READ COMMITTED, Lockstep', 'SERIALIZABLE, Lockstep']) {
      expect(row(said, title).slice(0, 4)).toEqual([200, 200, 0, 0])
    }
    const [confirmed = 0, balance = 0, lost = 0, failed = 0] = row(said, 'READ COMMITTED, no lock')
    expect([confirmed, failed, balance + lost]).toEqual([200, 0, 200])
    expect(lost).toBeGreaterThan(0)
    const [granted = 0, held = 0, missing = 0, failures = 0] = row(said, 'SERIALIZABLE, lock inside')
    expect([granted + failures, held, missing]).toEqual([200, granted, 0])
    expect(failures).toBeGreaterThan(0)
    // No terminal: no escape sequence, no progress.
    expect(said).not.toContain('\u001B')
    expect(said).not.toContain('racer 1')

    const url = /psql (\S+)/.exec(said)?.[1]
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    const { rows } = await client.query('select id, balance from lockstep_desk.wallets where id = $1', ['locked'])
    await client.end()
    expect(rows).toEqual([{ id: 'locked', balance: 100 }])

    const second = start(['--data', dataDir, '--once', ...small])
    expect(await second.ended()).toBe(1)
    expect(second.said).toMatch(/is in use by process \d+; stop that first or give another data directory/)
    expect(second.said).not.toContain(' at ')
    const port = new URL(url ?? '').port
    const third = start(['--data', join(place, 'other'), '--port', port, '--once', ...small])
    expect(await third.ended()).toBe(1)
    expect(third.said).toContain('The port is in use.')

    shown.kill('SIGINT')
    expect(await shown.ended()).toBe(0)
    await leavesNothing(shown)
  })

  test('with --once ends by itself and uses the data of the last start', async () => {
    const once = start(['--data', dataDir, '--once', ...small])
    expect(await once.ended()).toBe(0)
    expect(once.said).toContain('Starting a PostgreSQL in')
    expect(once.said).not.toContain('Ctrl-C')
    await leavesNothing(once)
  })
})

describe('the desk on DATABASE_URL', async () => {
  const database = await testDatabase()

  test('uses that database and starts no server', async () => {
    const guest = start(['--once', ...small], { DATABASE_URL: database.url })
    expect(await guest.ended()).toBe(0)
    expect(guest.said).toContain('Using the database of DATABASE_URL')
    expect(row(guest.said, 'SERIALIZABLE, Lockstep').slice(0, 4)).toEqual([50, 50, 0, 0])
  })

  test('says so when nobody answers there', async () => {
    const lonely = start(['--once'], { DATABASE_URL: 'postgres://postgres@127.0.0.1:1/nobody' })
    expect(await lonely.ended()).toBe(1)
    expect(lonely.said).toContain('No server answers at DATABASE_URL.')
  })
})
