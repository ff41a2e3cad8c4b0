import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { callCommand, ended, type Ran, startCommand } from '../../tools/server/testing/commandLine.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Lockstep } from '../index.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url })
const lockstep = new Lockstep(pool)
let directory: string

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'lockstep-outbox-'))
  for (let n = 1; n <= 3; n++) {
    await lockstep.transaction({}, async (tx) => {
      await tx.enqueue({ topic: 'trades', key: 'a', payload: { n } })
      await tx.enqueue({ topic: 'trades', key: 'b', payload: n, headers: { language: 'en' } })
    })
  }
  await lockstep.transaction({}, async (tx) => tx.enqueue({ topic: 'files', key: 'a', payload: Buffer.from([0, 255]) }))
  // As a person writes it in SQL: over several lines, and with a number that JavaScript would round.
  await pool.query(`SELECT lockstep.enqueue('files', 'sql', E'{\n  "n": 12345678901234567890\r\n}')`)
  await lockstep.outbox.erase({ topic: 'trades', key: 'b' }, { reason: 'x' })
})
afterAll(async () => {
  await lockstep.close()
  await pool.end()
  await rm(directory, { recursive: true, force: true })
})

const start = (...args: string[]): ReturnType<typeof startCommand> =>
  startCommand(['outbox', ...args], { url: database.url })
const run = (...args: string[]): Promise<Ran> => callCommand(['outbox', ...args], { url: database.url })

interface Line {
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly id: string
  readonly position: number
  readonly payload?: unknown
}

function linesOf(stdout: string): Line[] {
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line)
}

const namesOf = (stdout: string): string[] => linesOf(stdout).map(({ topic, key, seq }) => `${topic}/${key} #${seq}`)

describe.each(['pg', 'postgres'])('replay, with %s', (driver) => {
  const here = ['--driver', driver]

  test('prints everything in order, one event per line', async () => {
    const { code, stdout, stderr } = await run('replay', ...here)
    expect(code).toBe(0)
    expect(namesOf(stdout)).toEqual([
      ...[1, 2, 3].flatMap((n) => [`trades/a #${n}`, `trades/b #${n}`]),
      'files/a #1',
      'files/sql #1',
    ])
    const lines = linesOf(stdout)
    expect(lines[0]).toEqual({
      topic: 'trades',
      key: 'a',
      seq: 1,
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      position: 1,
      enqueuedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      headers: {},
      payload: { n: 1 },
    })
    expect(lines[1]).toMatchObject({ key: 'b', tombstone: 'erased' })
    expect(lines[1]).not.toHaveProperty('payload')
    expect(lines[6]).toMatchObject({ topic: 'files', bytes: Buffer.from([0, 255]).toString('base64') })
    expect(stdout).toMatch(/"payload":\{ +"n": 12345678901234567890 +\}\}\n$/)
    expect(stderr).toBe('8 events, the last files/sql #1 at position 8.\n')
  })

  test.each([
    [['--topic', 'trades'], ['a #1', 'b #1', 'a #2', 'b #2', 'a #3', 'b #3'].map((each) => `trades/${each}`)],
    [
      ['--topic', 'trades', '--key', 'a', '--from-seq', '2'],
      ['trades/a #2', 'trades/a #3'],
    ],
    [['--topic', 'trades', '--key', 'a', '--from-seq', '2', '--to-seq', '2'], ['trades/a #2']],
    [
      ['--topic', 'trades', '--from-position', '4'],
      ['trades/a #3', 'trades/b #3'],
    ],
    [
      ['--from-position', '6'],
      ['files/a #1', 'files/sql #1'],
    ],
    [['--topic', 'no such'], []],
  ])('prints a part: %j', async (args, expected) => {
    const { code, stdout, stderr } = await run('replay', ...args, ...here)
    expect(code).toBe(0)
    expect(namesOf(stdout)).toEqual(expected)
    if (expected.length === 0) expect(stderr).toBe('No event is retained of that.\n')
  })

  test('prints the summary as an object to stderr with --json', async () => {
    const replay = async (): Promise<unknown> => {
      const { stdout, stderr } = await run('replay', '--topic', 'trades', '--key', 'a', '--json', ...here)
      expect(linesOf(stdout)).toHaveLength(3)
      return JSON.parse(stderr)
    }
    // The position is lower while another transaction of the server is open, such as one of its own vacuum.
    await expect.poll(replay).toEqual({
      ok: true,
      command: 'outbox replay',
      schema: 'lockstep',
      events: 3,
      position: 5,
      lastSeq: 3,
      interrupted: false,
    })
    const failed = await run('replay', '--json', '--schema', 'no_such', ...here)
    expect(failed).toMatchObject({ code: 1, stdout: '' })
    expect(JSON.parse(failed.stderr)).toMatchObject({ ok: false, error: { code: 'LOCKSTEP_SCHEMA_MISSING' } })
  })
})

describe('replay to a module', () => {
  async function module(name: string, text: string): Promise<string> {
    const path = join(directory, name)
    await writeFile(path, text)
    return path
  }

  test('accepts a function or a sink', async () => {
    const out = join(directory, 'out')
    const take = `(events) => appendFileSync(${JSON.stringify(out)}, events.map(({ key, seq, payload }) => key + seq + JSON.stringify(payload) + ' ').join(''))`
    const head = `import { appendFileSync } from 'node:fs'\n`
    const byFunction = await module('function.mjs', `${head}export default ${take}`)
    const bySink = await module(
      'sink.mjs',
      `${head}const take = ${take}
       const say = (what) => appendFileSync(${JSON.stringify(out)}, what)
       export default {
         name: 'mine',
         async open() { say('open ') },
         async send(events) { take(events); return events.map(() => 'sent') },
         async close() { say('close') },
       }`,
    )
    const range = ['--topic', 'trades', '--key', 'a', '--from-seq', '2']
    const first = await run('replay', ...range, '--sink', byFunction)
    expect(first).toEqual({ code: 0, stdout: '2 events, the last trades/a #3 at position 5.\n', stderr: '' })
    expect(await readFile(out, 'utf8')).toBe('a2{"n":2} a3{"n":3} ')
    await rm(out)
    const second = await run('replay', ...range, '--sink', bySink, '--json')
    expect(JSON.parse(second.stdout)).toMatchObject({ ok: true, events: 2, lastSeq: 3 })
    expect(await readFile(out, 'utf8')).toBe('open a2{"n":2} a3{"n":3} close')
  })

  test.each([
    ['nothing', 'export const sink = 1', 2, 'is neither a sink nor a function'],
    ['broken', 'throw new Error("not today")', 1, 'broken.mjs" cannot be loaded: not today'],
    ['refuses', `export default (events) => events.map(({ seq }) => seq === 2 ? { refused: 'bad' } : 'sent')`, 1, '#2'],
    ['silent', `export default { name: 'silent', send: async () => [] }`, 1, 'gave 0 answers for 3 events'],
  ])('that %s', async (name, text, code, complaint) => {
    const sink = await module(`${name}.mjs`, text)
    const ran = await run('replay', '--topic', 'trades', '--key', 'a', '--sink', sink)
    expect(ran).toMatchObject({ code, stdout: '' })
    expect(ran.stderr).toContain(complaint)
  })

  test('ends after the batch on an interrupt, and prints where to continue', async () => {
    const begun = join(directory, 'begun')
    const slow = await module(
      'slow.mjs',
      `import { writeFileSync } from 'node:fs'
       export default async () => {
         writeFileSync(${JSON.stringify(begun)}, '')
         await new Promise((done) => process.once('SIGINT', () => setTimeout(done, 50)))
       }`,
    )
    const child = start('replay', '--topic', 'trades', '--sink', slow)
    const running = ended(child)
    await expect.poll(() => existsSync(begun)).toBe(true)
    child.kill('SIGINT')
    expect(await running).toEqual({
      code: 130,
      stdout: 'Interrupted after 6 events, the last trades/b #3 at position 6. Go on with --from-position 6.\n',
      stderr: '',
    })
  })
})

describe('verify', () => {
  const line = (key: string, seq: number, id?: string): string => JSON.stringify({ topic: 'trades', key, seq, id })
  const pipe = (lines: readonly string[], ...args: string[]): Promise<Ran> =>
    ended(start('verify', ...args), lines.join('\n'))
  async function verify(lines: readonly string[], ...args: string[]): Promise<Ran> {
    const file = join(directory, 'lines.jsonl')
    await writeFile(file, lines.join('\n'))
    return run('verify', file, ...args)
  }

  test('accepts what was replayed', async () => {
    const { stdout } = await run('replay')
    const file = join(directory, 'replayed.jsonl')
    await writeFile(file, stdout)
    expect(await run('verify', file)).toEqual({
      code: 0,
      stdout: '8 events of 4 streams: in order. 0 gaps, 0 inversions, 0 divergences, 0 duplicates.\n',
      stderr: '',
    })
  })

  test('reports every fault of what is piped into it', async () => {
    const planted = [
      line('gap', 1),
      line('gap', 4),
      line('gap', 6),
      line('late', 2),
      line('late', 1),
      '',
      line('twice', 1, 'u'),
      line('twice', 1, 'U'),
      line('other', 1, 'x'),
      line('other', 1, 'y'),
    ]
    const [text, json] = await Promise.all([pipe(planted, '-'), pipe(planted, '--json')])
    expect(text).toEqual({
      code: 1,
      stdout: `gap         trades/gap: #2 to #3 never came
gap         trades/gap: #5 never came
inversion   trades/late: #1 came after #2
divergence  trades/other: #1 came as x, then as y
duplicate   trades/twice: #1 came again

9 events of 4 streams: not in order. 2 gaps (3 numbers), 1 inversion, 1 divergence, 1 duplicate.
`,
      stderr: '',
    })
    expect(json.code).toBe(1)
    expect(JSON.parse(json.stdout)).toMatchObject({
      ok: false,
      command: 'outbox verify',
      inOrder: false,
      events: 9,
      gaps: { count: 2, missing: 3, examples: [{ topic: 'trades', key: 'gap', from: 2, to: 3 }, {}] },
      inversions: { count: 1 },
      divergences: { count: 1 },
      duplicates: { count: 1 },
    })
  })

  test('accepts duplicates, and a part that begins with any number', async () => {
    const lines = [line('k', 5), line('k', 6), line('k', 6)]
    const [whole, part] = await Promise.all([verify(lines), verify(lines, '--part')])
    expect(whole.code).toBe(1)
    expect(whole.stdout).toContain('trades/k: #1 to #4 never came')
    expect(part).toMatchObject({ code: 0, stderr: '' })
    expect(part.stdout).toContain('3 events of 1 stream: in order.')
  })

  test('counts faults beyond those that it shows', async () => {
    const lines = Array.from({ length: 13 }, (_, n) => line('k', 2 * n + 2))
    expect((await verify(lines)).stdout).toMatch(/\ngap {2}… 3 more\n\n13 events .* 13 gaps \(13 numbers\)/)
  })

  test.each([
    ['Line 2 is no event.', ['{"topic":']],
    ['Line 2 is no event.', ['7']],
    ['Line 2 is no event.', ['null']],
    ['Line 2 is no event.', ['{"topic":"a","key":"b","seq":1,"id":7}']],
    ['Line 2: The key is undefined.', ['{"topic":"a","seq":1}']],
    ['Line 2: seq is "1".', ['{"topic":"a","key":"b","seq":"1"}']],
    ['Line 2: seq is 0.', ['{"topic":"a","key":"b","seq":0}']],
  ])('%s %j', async (complaint, lines) => {
    const ran = await verify([line('k', 1), ...lines])
    expect(ran).toMatchObject({ code: 2, stdout: '' })
    expect(ran.stderr.replace(/ of \S*lines\.jsonl/, '')).toContain(complaint)
    expect(ran.stderr).toContain('Each line is a JSON object with topic, key and seq')
  })
})
