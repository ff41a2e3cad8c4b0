import { describe, expect, test } from 'vitest'
import { PoolClosedError } from '../errors.ts'
import { connectionBench, type Setting } from './connectionBench.conformance.ts'
import { driverFor } from './driver.ts'

/** What every driver promises to the modules above, in whatever setting. */
export function describeConnection(setting: Setting, adminUrl: string): void {
  describe(setting.name, () => {
    // What makes no sense where the pooler's sessions are not ours.
    const direct: (name: string, fn: () => Promise<void>) => void = setting.pooled ? () => undefined : test
    const { connect, gone, open, stillWaiting } = connectionBench(setting, adminUrl)

    test('returns a result for each statement of a script with rows, in order, the last one with the last command tag', async () => {
      const { driver } = open()
      const connection = await connect(driver)
      const results = await connection.script(`
        BEGIN; SELECT 1 AS one, 'a' AS letter; SELECT 2 AS two WHERE false; SET LOCAL lock_timeout = 1000;
        SELECT n AS three FROM generate_series(3, 4) n; ROLLBACK`)
      expect(results.map((result) => result.rows).filter((rows) => rows.length > 0)).toEqual([
        [{ one: '1', letter: 'a' }],
        [{ three: '3' }, { three: '4' }],
      ])
      expect(results[0]).toMatchObject({ command: 'BEGIN', rows: [], rowCount: 0 })
      expect(results[1]).toMatchObject({ command: 'SELECT', rowCount: 1 })
      expect(results.at(-1)?.command).toBe('ROLLBACK')
      const [empty, full] = await connection.script('SELECT 1 AS n WHERE false; SELECT 2 AS n')
      expect([empty?.rows, empty?.rowCount, full?.rows, full?.rowCount]).toEqual([[], 0, [{ n: '2' }], 1])
    })

    test('returns one result for one statement', async () => {
      const connection = await connect(open().driver)
      const results = await connection.script('CREATE TEMP TABLE alone (n int); SELECT 1')
      expect(results.at(-1)).toEqual({ command: 'SELECT', rowCount: 1, rows: [{ '?column?': '1' }] })
      expect(await connection.script('VALUES (1), (2)')).toMatchObject([{ rowCount: 2 }])
      expect(await connection.script('BEGIN')).toMatchObject([{ command: 'BEGIN', rows: [], rowCount: 0 }])
      expect(await connection.script('COMMIT')).toMatchObject([{ command: 'COMMIT', rows: [], rowCount: 0 }])
      await connection.script('DISCARD TEMP')
    })

    test('rejects a script with the SQLSTATE of its error, and runs nothing after it', async () => {
      const connection = await connect(open().driver)
      const failing = connection.script('BEGIN; SELECT 1; SELECT 1/0; SELECT pg_advisory_xact_lock(4711)')
      await expect(failing).rejects.toMatchObject({ code: '22012' })
      expect(connection.lost).toBe(false)
      expect(await connection.script('ROLLBACK')).toMatchObject([{ command: 'ROLLBACK' }])
      expect(await connection.script('SELECT 5 AS five')).toMatchObject([{ rows: [{ five: '5' }] }])
    })

    test('returns ROLLBACK for COMMIT of a failed transaction', async () => {
      const connection = await connect(open().driver)
      await connection.script('BEGIN')
      await expect(connection.query('SELECT 1/0')).rejects.toMatchObject({ code: '22012' })
      expect(await connection.script('COMMIT')).toMatchObject([{ command: 'ROLLBACK' }])
    })

    test('passes parameters of a query, counts its rows and rejects a second statement', async () => {
      const connection = await connect(open().driver)
      const { rows, rowCount, command } = await connection.query<{ word: string; number: number; nothing: null }>(
        'SELECT $1::text AS word, $2::int AS number, $3::text AS nothing FROM generate_series(1, 2)',
        ["it's a \\ word", 42, null],
      )
      const row = { word: "it's a \\ word", number: 42, nothing: null }
      expect({ rows, rowCount, command }).toEqual({ rows: [row, row], rowCount: 2, command: 'SELECT' })
      await expect(connection.query('SELECT 1; SELECT 2')).rejects.toMatchObject({ code: '42601' })
      await connection.script('CREATE TEMP TABLE counted ON COMMIT DROP AS SELECT 1')
      await connection.script('BEGIN; CREATE TEMP TABLE counted (n int) ON COMMIT DROP')
      expect(await connection.query('INSERT INTO counted VALUES ($1), ($2)', [1, 2])).toMatchObject({
        rows: [],
        rowCount: 2,
        command: 'INSERT',
      })
      await connection.script('ROLLBACK')
    })

    test('passes values of every type in internal statements, and returns text by column name', async () => {
      const connection = await connect(open().driver)
      const { rows, rowCount, command } = await connection.read(
        `SELECT $1::text AS some_word, $2::bigint AS "aNumber", $3::boolean AS yes, $4::bytea AS bytes, $5::text AS nothing,
                array_to_json($6::text[]) AS words, array_to_json($7::bytea[])::text AS blobs, $8::json AS document,
                $9::timestamptz AT TIME ZONE 'UTC' AS moment`,
        [
          'it\'s a \\ "ü"',
          2n ** 60n,
          true,
          Buffer.from([0, 255]),
          null,
          ['a "b"', 'c\\d', null, '{,}', ''],
          [Buffer.from([1])],
          '{"a": [1]}',
          '2020-01-02T03:04:05Z',
        ],
      )
      expect({ rowCount, command }).toEqual({ rowCount: 1, command: 'SELECT' })
      expect(rows).toEqual([
        {
          some_word: 'it\'s a \\ "ü"',
          aNumber: String(2n ** 60n),
          yes: 't',
          bytes: '\\x00ff',
          nothing: null,
          words: JSON.stringify(['a "b"', 'c\\d', null, '{,}', '']),
          blobs: String.raw`["\\x01"]`,
          document: '{"a": [1]}',
          moment: '2020-01-02 03:04:05',
        },
      ])
      expect((await connection.read('SELECT 1 AS one')).rows).toEqual([{ one: '1' }])
      await expect(connection.read('SELECT 1; SELECT 2')).rejects.toMatchObject({ code: '42601' })
      await expect(connection.read('SELECT $1::int', ['x'])).rejects.toMatchObject({ code: '22P02' })
    })

    test('reports the process id of the backend exactly if there is no pooler', async () => {
      const connection = await connect(open().driver)
      const [result] = await connection.script('SELECT pg_backend_pid() AS pid')
      expect(connection.protocolPid).toBeTypeOf('number')
      expect(connection.protocolPid === Number(result?.rows[0]?.['pid'])).toBe(!setting.pooled)
    })

    test('runs a query as the first message of a connection', async () => {
      const connection = await connect(open(1).driver)
      expect((await connection.query<{ n: number }>('SELECT $1::int AS n', [1])).rows).toEqual([{ n: 1 }])
    })

    direct('release gives the same session to the next caller', async () => {
      const { driver } = open(1)
      const pids: unknown[] = []
      for (let round = 0; round < 3; round++) {
        const connection = await connect(driver)
        pids.push((await connection.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows[0]?.pid)
        connection.release()
      }
      expect(new Set(pids).size).toBe(1)
    })

    test('returns a connection to the pool once when it is released twice', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      await first.script('SELECT 1')
      first.release()
      first.release()
      const second = await connect(driver)
      await second.script('SELECT 1')
      first.release()
      first.destroy()
      const third = connect(driver)
      expect(await stillWaiting(third, second)).toBe(true)
      second.release()
      expect(await (await third).script('SELECT 3 AS n')).toMatchObject([{ rows: [{ n: '3' }] }])
    })

    test('ends the session and its transaction by destroy(), and the pool replaces it', async () => {
      const { driver } = open(1)
      const first = await connect(driver)
      const results = await first.script('BEGIN; SELECT pg_advisory_xact_lock(4712); SELECT pg_backend_pid() AS pid')
      const pid = Number(results.at(-1)?.rows[0]?.['pid'])
      const waiting = connect(driver)
      first.destroy()
      const second = await waiting
      const [answer] = await second.script('SELECT pg_try_advisory_xact_lock(4712) AS free, pg_backend_pid() AS pid')
      await gone(pid)
      expect(Number(answer?.rows[0]?.['pid'])).not.toBe(pid)
    })

    test('frees the place in the pool by destroy() before the first use', async () => {
      const { driver } = open(1)
      ;(await connect(driver)).destroy()
      expect(await (await connect(driver)).script('SELECT 1 AS n')).toMatchObject([{ rows: [{ n: '1' }] }])
    })

    test('queues callers beyond the size of the pool', async () => {
      const { driver } = open(2)
      expect(driver.poolSize).toBe(2)
      let inside = 0
      let most = 0
      const work = async (): Promise<void> => {
        const connection = await driver.connect()
        most = Math.max(most, ++inside)
        await connection.script('SELECT 1')
        inside--
        connection.release()
      }
      await Promise.all(Array.from({ length: 40 }, work))
      // Where the second connection takes long to open, the first may do it all.
      expect(most).toBeLessThanOrEqual(2)
      expect(inside).toBe(0)
    })

    test('reports an ended pool, whether it was used before or not', async () => {
      const unused = open()
      await unused.end()
      await expect(unused.driver.connect()).rejects.toBeInstanceOf(PoolClosedError)
      const used = open()
      const connection = await connect(used.driver)
      await connection.script('SELECT 1')
      connection.release()
      await used.end()
      await expect(used.driver.connect()).rejects.toBeInstanceOf(PoolClosedError)
      const endedBefore = setting.open(1, setting.url)
      await endedBefore.end()
      await expect(driverFor(endedBefore.pool).connect()).rejects.toBeInstanceOf(PoolClosedError)
    })

    test('leaves a wrapped client to its owner', async () => {
      const { driver, borrow } = open(1)
      const { client, returnToPool } = await borrow()
      const wrapped = driver.wrap(client)
      const results = await wrapped.script('BEGIN; SELECT pg_backend_pid() AS pid')
      wrapped.release()
      wrapped.destroy()
      const again = driver.wrap(client)
      const { rows } = await again.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
      expect(String(rows[0]?.pid)).toBe(results.at(-1)?.rows[0]?.['pid'])
      expect(await again.script('COMMIT')).toMatchObject([{ command: 'COMMIT' }])
      again.release()
      returnToPool()
      expect(await (await connect(driver)).script('SELECT 1 AS n')).toMatchObject([{ rows: [{ n: '1' }] }])
    })

    test('leaves no listeners on a client that is taken many times', async () => {
      const warnings: Error[] = []
      const note = (warning: Error): void => void warnings.push(warning)
      process.on('warning', note)
      try {
        const { driver, borrow } = open(1)
        for (let round = 0; round < 30; round++) {
          const connection = await driver.connect()
          await connection.script('SELECT 1')
          connection.release()
        }
        const { client, returnToPool } = await borrow()
        for (let round = 0; round < 30; round++) {
          const wrapped = driver.wrap(client)
          await wrapped.script('SELECT 1')
          wrapped.release()
        }
        returnToPool()
        // Node emits warnings in the next tick.
        await new Promise((resolve) => setImmediate(resolve))
        expect(warnings).toEqual([])
      } finally {
        process.off('warning', note)
      }
    })

    test('sends a first message of 100 kB', async () => {
      const connection = await connect(open(1).driver)
      expect(await connection.script(`SELECT 1 AS n /* ${'x'.repeat(100_000)} */`)).toMatchObject([
        { rows: [{ n: '1' }] },
      ])
    })
  })
}
