import { afterAll, expect, test } from 'vitest'
import { pack, tarball } from '../../check/tarball.ts'
import { testDatabase } from '../../server/testDatabase.ts'
import { compilePrograms, emptyProject, EXPECTED, PACKAGES, tryOrm } from './tryOrm.ts'

const database = await testDatabase({ leakGuard: false })
// `npm test` has built it, and other tests run on what is there.
const { path } = await (process.env['LOCKSTEP_BUILT'] === '1' ? pack() : tarball())
const empty = await emptyProject(path)
afterAll(() => empty[Symbol.asyncDispose]())

test('installs no ORM with the package alone', () => {
  expect(empty.installed).toEqual(['pg-lockstep'])
})

test.each(Object.keys(PACKAGES))('the packed package runs the program of the guide with %s alone', async (name) => {
  expect(await tryOrm(name, empty, 'linked', database.url)).toEqual(EXPECTED)
})

test('the programs compile against the types of the packed package', async () => {
  expect(await compilePrograms(empty)).toBe('')
})
