import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, realpath, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  callCommand,
  type CommandOptions,
  type Ran,
  runCommand,
  startCommand,
} from '../../tools/server/testing/commandLine.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { KNOWN_VERSION } from '../postgres/index.ts'

const require = createRequire(import.meta.url)
const nobody = 'postgres://postgres:secret@127.0.0.1:1/nobody'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url })
afterAll(() => pool.end())

const start = (args: readonly string[]): ReturnType<typeof startCommand> => startCommand(args, { url: database.url })
const lockstep = (args: readonly string[], where: CommandOptions = {}): Promise<Ran> =>
  runCommand(args, { url: database.url, ...where })

/** The one line on stdout. */
function answer({ stdout }: Ran): Record<string, unknown> {
  expect(stdout.split('\n')).toHaveLength(2)
  return JSON.parse(stdout) as Record<string, unknown>
}

describe.each(['pg', 'postgres'])('with %s', (driver) => {
  const schema = `cli_${driver}`
  const here = ['--driver', driver, '--schema', schema]

  test('fails the doctor without a schema', async () => {
    const [text, json] = await Promise.all([lockstep(['doctor', ...here]), lockstep(['doctor', '--json', ...here])])
    expect(text.code).toBe(1)
    expect(text.stdout).toMatch(/^fail {2}schema +The database has no Lockstep schema "cli_/m)
    expect(text.stdout).toMatch(/^ +→ Run `npx pg-lockstep migrate`/m)
    expect(text.stdout).toMatch(/^\d+ checks, 1 failed: Lockstep cannot keep a guarantee here\./m)
    expect(text.stdout).not.toContain('\u001B')
    expect(json.code).toBe(1)
    expect(answer(json)).toMatchObject({
      ok: false,
      command: 'doctor',
      driver,
      schema,
      findings: expect.arrayContaining([expect.objectContaining({ name: 'schema', level: 'fail' })]),
    })
  })

  test('migrates to a version, then to the newest, then does nothing', async () => {
    const first = await lockstep(['migrate', '--to', '1', ...here])
    expect(first).toMatchObject({ code: 0, stderr: '' })
    expect(first.stdout).toMatch(/^The schema "cli_\w+" was created, and is now at version 1:\n {2}0001 {2}\w+\n$/)
    const second = await lockstep(['migrate', '--json', ...here])
    expect(second).toMatchObject({ code: 0, stderr: '' })
    expect(answer(second)).toMatchObject({ ok: true, command: 'migrate', schema, driver, from: 1, to: KNOWN_VERSION })
    const third = await lockstep(['migrate', ...here])
    expect(third.stdout).toBe(`The schema "${schema}" is at version ${KNOWN_VERSION}: nothing to do.\n`)
  })

  test('passes the doctor with a migrated schema', async () => {
    await lockstep(['migrate', ...here])
    const json = await lockstep(['doctor', '--json', ...here])
    expect(json).toMatchObject({ code: 0, stderr: '' })
    const { findings } = answer(json) as { findings: { name: string; level: string }[] }
    expect(findings.filter(({ level }) => level === 'fail')).toEqual([])
    // The pool that the doctor sees is the command's, not the application's.
    expect(findings.map(({ name }) => name)).not.toContain('pool')
  })

  test('reports an unreachable server without a stack and without the password', async () => {
    const [text, json] = await Promise.all([
      lockstep(['doctor', '--driver', driver, '--url', nobody]),
      lockstep(['migrate', '--json', '--driver', driver, '--url', nobody]),
    ])
    expect(text).toMatchObject({ code: 1, stdout: '' })
    expect(text.stderr).toBe(
      'pg-lockstep: No server answers at 127.0.0.1:1: the connection was refused.\n' +
        'Is PostgreSQL running there? Check host and port in --url or DATABASE_URL.\n' +
        'code: ECONNREFUSED\n',
    )
    expect(json.code).toBe(1)
    expect(answer(json)).toMatchObject({ ok: false, error: { code: 'ECONNREFUSED' } })
    expect(json.stdout + json.stderr).not.toContain('secret')
  })

  test('reports a missing database in the words of the server', async () => {
    const elsewhere = new URL(database.url)
    elsewhere.pathname = '/no_such_database'
    const { code, stderr } = await lockstep(['doctor', '--driver', driver, '--url', elsewhere.href])
    expect(code).toBe(1)
    expect(stderr).toMatch(/database "no_such_database" does not exist\nCreate it .*\ncode: 3D000\n$/)
  })

  test('names its connections, and leaves nothing after an interrupt', async () => {
    const holder = await pool.connect()
    try {
      // A migration of this schema has to wait for this transaction.
      const waiting = `wait_${driver}`
      await holder.query(`begin; create schema ${waiting}`)
      const child = start(['migrate', '--driver', driver, '--schema', waiting])
      const blocked = `select state from pg_stat_activity where application_name = 'lockstep-cli' and datname = $1 and wait_event_type = 'Lock'`
      await expect.poll(async () => (await pool.query(blocked, [database.name])).rows).toHaveLength(1)
      child.kill('SIGINT')
      const [code] = (await once(child, 'close')) as [number | null]
      expect(code).toBe(130)
      await holder.query('rollback')
      const { rows } = await pool.query('select from pg_namespace where nspname = $1', [waiting])
      expect(rows).toEqual([])
    } finally {
      holder.release()
    }
  })
})

describe('mistakes on the command line exit with 2', () => {
  test.each([
    [['migrat'], /^pg-lockstep: There is no command "migrat"\.\nDid you mean `migrate`\?/],
    [['doctor', '--verbose'], /`doctor` has no option --verbose\./],
    [['migrate', '--to', 'newest'], /--to cannot be "newest"\./],
    [['migrate', '--to', '9999'], /There is no migration 9999\.\nUse 1 to \d+\.\n$/],
    [['doctor', '--schema', 'pg_mine'], /The schema name "pg_mine" cannot be used\./],
    [['doctor', '--url', 'mysql://root:secret@db/x'], /--url is not the URL of a PostgreSQL database\./],
  ])('%j', async (args, expected) => {
    const { code, stdout, stderr } = await callCommand(args, { url: database.url })
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toMatch(expected)
    expect(stderr).not.toContain('secret')
    expect(stderr).not.toContain(' at ')
  })

  test('and are JSON with --json', async () => {
    const ran = await lockstep(['doctor', '--json', '--verbose'])
    expect(ran.code).toBe(2)
    expect(answer(ran)).toMatchObject({ ok: false, error: { code: 'USAGE' } })
  })

  test('without a database', async () => {
    const { code, stderr } = await lockstep(['doctor'], { env: { DATABASE_URL: '' } })
    expect(code).toBe(2)
    expect(stderr).toContain('Set DATABASE_URL, or write --url postgres://user@host:5432/name.')
  })

  test('shows the stack on request', async () => {
    const { stderr } = await lockstep(['doctor', '--url', nobody], { env: { LOCKSTEP_DEBUG: '1' } })
    expect(stderr).toMatch(/^ +at /m)
  })
})

describe('the driver of the working directory', () => {
  let directory: string
  beforeAll(async () => {
    directory = await realpath(await mkdtemp(join(tmpdir(), 'lockstep-cli-')))
  })
  afterAll(() => rm(directory, { recursive: true, force: true }))

  test('is reported if missing', async () => {
    const { code, stderr } = await lockstep(['doctor'], { cwd: directory })
    expect(code).toBe(1)
    expect(stderr).toContain(`Neither pg nor postgres is installed in ${directory}.`)
    expect(stderr).toContain('npm install pg')
    const wanted = await lockstep(['doctor', '--driver', 'postgres'], { cwd: directory })
    expect(wanted.stderr).toContain(`postgres is not installed in ${directory}.`)
    expect(wanted.stderr).toContain('npm install postgres')
  })

  test('is postgres if pg is missing', async () => {
    await mkdir(join(directory, 'node_modules'))
    const ours = fileURLToPath(new URL('../../node_modules/postgres', import.meta.url))
    await symlink(ours, join(directory, 'node_modules', 'postgres'))
    const ran = await lockstep(['migrate', '--json', '--schema', 'cli_found'], { cwd: directory })
    expect(answer(ran)).toMatchObject({ ok: true, driver: 'postgres' })
  })
})

describe('without a database', () => {
  test('help, version and completion answer', async () => {
    const env = { DATABASE_URL: '' }
    const [help, version, about, bash, zsh] = await Promise.all(
      [['--help'], ['--version'], ['migrate', '--help'], ['completion', 'bash'], ['completion', 'zsh']].map((args) =>
        lockstep(args, { env }),
      ),
    )
    for (const ran of [help, version, about, bash, zsh]) expect(ran).toMatchObject({ code: 0, stderr: '' })
    expect(help?.stdout).toMatch(/^ {2}migrate [^]*^ {2}doctor [^]*^ {2}completion /m)
    expect(version?.stdout).toBe(`${(require('../../package.json') as { version: string }).version}\n`)
    expect(about?.stdout).toContain('--to N')
    const complete = `${bash?.stdout}\nCOMP_WORDS=(pg-lockstep doctor --dr); COMP_CWORD=2; _pg_lockstep; echo "\${COMPREPLY[@]}"`
    expect(spawnSync('bash', ['-c', complete], { encoding: 'utf8' }).stdout).toBe('--driver\n')
    expect(zsh?.stdout).toContain('compdef _pg_lockstep pg-lockstep lockstep')
  })

  test('does not fail when its reader closes the pipe', async () => {
    const child = start(['--help'])
    child.stdout.destroy()
    let stderr = ''
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    expect(await once(child, 'close')).toEqual([0, null])
    expect(stderr).toBe('')
  })
})
