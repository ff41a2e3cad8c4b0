import { expect, test } from 'vitest'
import { placeSigns, serverSigns } from './production.ts'

const QUIET = { sessions: 0, standbys: 0, rows: 0, bytes: 8e6, archiving: 'off' }

test.each(['postgres://localhost/app', 'postgres://me:secret@127.0.0.1:5433/app', 'postgres://[::1]/app'])(
  '%s is on this machine',
  (url) => expect(placeSigns(url)).toEqual([]),
)

test('treats a remote server as production, and shows no password', () => {
  expect(placeSigns('postgres://me:secret@db.example.com/app')).toEqual(['it is not on this machine (db.example.com)'])
  expect(placeSigns('postgres://10.0.0.7/app')).toEqual(['it is not on this machine (10.0.0.7)'])
})

test.each([
  [{}, []],
  [{ sessions: 1 }, ['1 other session is connected']],
  [{ sessions: 3, standbys: 2 }, ['3 other sessions are connected', '2 standbys follow it']],
  [{ rows: 200_000 }, ['its tables have about 200000 rows']],
  [{ bytes: 3 * 1024 ** 3 }, ['the database has 3072 MiB']],
  [{ archiving: 'on' }, ['archive_mode is on']],
])('%j', (signs, told) => {
  expect(serverSigns({ ...QUIET, ...signs })).toEqual(told)
})
