import { expect, test } from 'vitest'
import { noDownloadAddresses } from './noDownloadAddresses.ts'
import { treeOf } from './tree.ts'

test('addresses in a lockfile, at any depth, and a registry in .npmrc are found', () => {
  const lock = JSON.stringify({ packages: { 'node_modules/a': { resolved: 'https://registry.example/a.tgz' } } })
  const tree = treeOf({
    'package-lock.json': lock,
    'tools/matrix/package-lock.json': lock,
    'bench/.npmrc': 'fund=false\nregistry=https://registry.example\n',
  })
  expect(noDownloadAddresses.find(tree).map(({ file, line }) => [file, line])).toEqual([
    ['bench/.npmrc', 2],
    ['package-lock.json', 1],
    ['tools/matrix/package-lock.json', 1],
  ])
})

test('a lockfile that pins by integrity and links its folders is green', () => {
  const lock = JSON.stringify({ packages: { a: { resolved: 'packages/a', link: true }, b: { integrity: 'sha512-x' } } })
  const tree = treeOf({ 'package-lock.json': lock, '.npmrc': 'omit-lockfile-registry-resolved=true\n' })
  expect(noDownloadAddresses.find(tree)).toEqual([])
})
