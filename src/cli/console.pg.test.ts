import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import pg from 'pg'
import { afterAll, afterEach, expect, test } from 'vitest'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { checkShapes } from '../../tools/server/testing/cliShapes.ts'

const main = nodeArguments(new URL('main.ts', import.meta.url))
const TOKEN = 'a-token-that-nobody-can-guess'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url })
afterAll(() => pool.end())

// Each starts programs, which takes seconds on a busy machine.
const running = new Set<ReturnType<typeof spawn>>()
afterEach(() => {
  for (const child of running) child.kill('SIGKILL')
  running.clear()
})

interface Started {
  readonly child: ReturnType<typeof spawn>
  readonly said: { stdout: string; stderr: string }
  readonly ended: Promise<number | null>
  /** Comes back with the first line on stdout. */
  readonly firstLine: Promise<string>
}

function start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Started {
  const child = spawn(process.execPath, [...main, 'console', ...args], {
    env: { ...process.env, DATABASE_URL: database.url, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  running.add(child)
  const said = { stdout: '', stderr: '' }
  const firstLine = new Promise<string>((resolve, reject) => {
    child.stdout.on('data', (chunk: Buffer) => {
      said.stdout += chunk.toString()
      if (said.stdout.includes('\n')) resolve(said.stdout.split('\n', 1)[0] ?? '')
    })
    child.once('close', () => reject(new Error(said.stderr)))
  })
  firstLine.catch(() => undefined)
  child.stderr.on('data', (chunk: Buffer) => (said.stderr += chunk.toString()))
  const ended = once(child, 'close').then(([code]) => {
    if (args.includes('--json')) checkShapes(`${said.stdout}\n${said.stderr}`)
    return code as number | null
  })
  return { child, said, firstLine, ended }
}

test('prints its address, serves the page, and ends on Ctrl-C, also with viewers', async () => {
  const { child, said, firstLine, ended } = start(['--port', '0', '--operator', '--json'])
  const told = JSON.parse(await firstLine) as { address: string; madeToken: string }
  expect(told).toEqual({
    ok: true,
    command: 'console',
    address: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/$/),
    operator: true,
    token: true,
    madeToken: expect.stringMatching(/^[0-9a-f]{32}$/),
  })
  // Operators always need a token: where none is given, it makes one.
  expect((await fetch(new URL('api/session', told.address))).status).toBe(401)
  const headers = { authorization: `Bearer ${told.madeToken}` }
  const session = await fetch(new URL('api/session', told.address), { headers })
  expect(await session.json()).toMatchObject({ operator: true, database: database.name, schema: 'lockstep' })
  const stream = await fetch(new URL('api/stream?show=overview,outbox', told.address), { headers })
  const reader = (stream.body as ReadableStream<Uint8Array>).getReader()
  let text = ''
  while (!text.includes('event: outbox')) text += new TextDecoder().decode((await reader.read()).value)
  child.kill('SIGINT')
  expect(await ended).toBe(0)
  while (!(await reader.read().catch(() => ({ done: true }))).done);
  expect(said.stdout.trim().split('\n')).toHaveLength(1)
})

test('prints its mode and how to end it', async () => {
  const { child, said, firstLine, ended } = start(['--port', '0', '--host', 'localhost'])
  expect(await firstLine).toMatch(/^The console is at http:\/\/localhost:\d+\/$/)
  await expect.poll(() => said.stdout).toContain('It is read-only. Ctrl-C ends it.')
  child.kill('SIGINT')
  expect(await ended).toBe(0)
})

test('requires a token beyond this machine', async () => {
  const { said, ended } = start(['--port', '0', '--host', '0.0.0.0'], { LOCKSTEP_CONSOLE_TOKEN: '' })
  expect(await ended).toBe(2)
  expect(said.stdout).toBe('')
  expect(said.stderr).toContain('there is no token')
  expect(said.stderr).toContain('LOCKSTEP_CONSOLE_TOKEN')
  const short = start(['--port', '0', '--token', 'short'])
  expect(await short.ended).toBe(2)
  expect(short.said.stderr).not.toContain('"short"')
})

test('listens for other machines with a token', async () => {
  const guarded = start(['--port', '0', '--host', '0.0.0.0', '--json'], { LOCKSTEP_CONSOLE_TOKEN: TOKEN })
  const { address } = JSON.parse(await guarded.firstLine) as { address: string }
  const place = new URL('api/session', address)
  expect((await fetch(place)).status).toBe(401)
  expect((await fetch(place, { headers: { authorization: `Bearer ${TOKEN}` } })).status).toBe(200)
  guarded.child.kill('SIGINT')
  expect(await guarded.ended).toBe(0)
})

test('reports mistakes before it serves anything', async () => {
  const taken = createServer()
  await new Promise<void>((resolve) => void taken.listen(0, '127.0.0.1', resolve))
  const { port } = taken.address() as { port: number }
  const wrong: [string[], Record<string, string>, number, string][] = [
    [['--port', String(port)], {}, 2, 'is taken'],
    [['--port', '70000'], {}, 2, '--port cannot be 70000'],
    [['--port', '0'], { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' }, 1, 'ECONNREFUSED'],
    [['--port', '0', '--schema', 'missing'], {}, 1, 'LOCKSTEP_SCHEMA_MISSING'],
  ]
  const started = wrong.map(([args, env]) => start(args, env))
  for (const [place, [args, , code, words]] of wrong.entries()) {
    const { said, ended } = started[place] as Started
    expect([await ended, said.stdout], args.join(' ')).toEqual([code, ''])
    expect(said.stderr).toContain(words)
  }
  await new Promise((resolve) => taken.close(resolve))
})
