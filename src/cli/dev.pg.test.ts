import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, realpath, rm, symlink } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { KNOWN_VERSION } from '../postgres/index.ts'
import { checkShapes } from '../../tools/server/testing/cliShapes.ts'

const main = nodeArguments(new URL('main.ts', import.meta.url))
let directory = ''
const children: ChildProcessByStdio<null, Readable, Readable>[] = []

beforeEach(async () => {
  directory = await realpath(await mkdtemp(join(tmpdir(), 'lockstep-dev-')))
})
afterEach(async () => {
  for (const child of children.splice(0)) {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGINT')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  }
  await rm(directory, { recursive: true, force: true, maxRetries: 5 })
})

function start(...args: string[]): ChildProcessByStdio<null, Readable, Readable> {
  const child = spawn(process.execPath, [...main, 'dev', ...args], {
    cwd: directory,
    env: { ...process.env, DATABASE_URL: '' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  children.push(child)
  return child
}

/** A project that has the driver and the server's programs. */
async function furnish(): Promise<void> {
  await symlink(fileURLToPath(new URL('../../node_modules', import.meta.url)), join(directory, 'node_modules'))
}

interface Started {
  readonly url: string
  readonly console: string
  readonly consoleToken: string
  readonly data: string
  readonly migrations: number
}

/** What it prints when everything has started. */
async function started(child: ChildProcessByStdio<null, Readable, Readable>): Promise<Started> {
  let stderr = ''
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  const [line] = (await Promise.race([once(child.stdout, 'data'), once(child, 'close')])) as [Buffer | number | null]
  if (!Buffer.isBuffer(line)) throw new Error(`it ended with ${line}: ${stderr}`)
  checkShapes(line.toString())
  return JSON.parse(line.toString()) as Started
}

async function failed(
  child: ChildProcessByStdio<null, Readable, Readable>,
): Promise<{ code: unknown; stderr: string }> {
  let stderr = ''
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  const [code] = (await once(child, 'close')) as [unknown]
  return { code, stderr }
}

async function ask<Row extends pg.QueryResultRow>(url: string, text: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query<Row>(text)).rows
  } finally {
    await client.end()
  }
}

async function postmasterOf({ data }: Started): Promise<number> {
  return Number.parseInt(await readFile(join(data, 'postmaster.pid'), 'utf8'), 10)
}

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

// With fsync, a data directory takes some seconds on a machine that is busy.

test('starts a database and a console, ends on Ctrl-C, and keeps the data', async () => {
  await furnish()
  const first = start('--port', '0', '--json')
  const here = await started(first)
  expect(here).toMatchObject({ ok: true, command: 'dev', migrations: KNOWN_VERSION })
  expect(here.data).toBe(join(directory, '.lockstep', 'data'))
  expect(await readFile(join(directory, '.lockstep', '.gitignore'), 'utf8')).toBe('*\n')
  await ask(here.url, 'CREATE TABLE mine (id int)')
  const session = new URL('api/session', here.console)
  expect((await fetch(session)).status).toBe(401)
  const page = await fetch(session, { headers: { authorization: `Bearer ${here.consoleToken}` } })
  expect(await page.json()).toMatchObject({ operator: true, schema: 'lockstep' })
  const postmaster = await postmasterOf(here)

  const other = await failed(start('--port', '0'))
  expect(other.code).toBe(1)
  expect(other.stderr).toMatch(/is in use by process \d+.*\n.*--data DIR/)

  first.kill('SIGINT')
  expect(await once(first, 'exit')).toEqual([0, null])
  expect(isThere(postmaster)).toBe(false)
  await expect(fetch(here.console)).rejects.toThrow('fetch failed')

  const again = await started(start('--port', '0', '--json'))
  expect(again.migrations).toBe(0)
  expect(await ask(again.url, `SELECT to_regclass('mine')::text AS mine`)).toEqual([{ mine: 'mine' }])
})

test('leaves no server behind when it is killed', async () => {
  await furnish()
  const child = start('--port', '0', '--json', '--data', 'elsewhere/database')
  const here = await started(child)
  expect(here.data).toBe(join(directory, 'elsewhere', 'database'))
  expect(existsSync(join(directory, '.lockstep'))).toBe(false)
  const postmaster = await postmasterOf(here)
  child.kill('SIGKILL')
  await once(child, 'exit')
  await expect.poll(() => isThere(postmaster)).toBe(false)
})

test('reports conflicts before it starts anything', async () => {
  const bare = await failed(start('--port', '0'))
  expect(bare.code).toBe(1)
  expect(bare.stderr).toContain(`Neither pg nor postgres is installed in ${directory}.`)
  expect(existsSync(join(directory, '.lockstep'))).toBe(false)
  await furnish()
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  const { port } = taken.address() as { port: number }
  const refused = await failed(start('--port', String(port)))
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining(`Port ${port} is taken.`) })
  expect((await failed(start('--port', '70000'))).code).toBe(2)
  taken.close()
})
