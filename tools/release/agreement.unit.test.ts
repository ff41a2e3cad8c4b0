import { expect, test } from 'vitest'
import { listSignatures } from '../schema/signatures.ts'
import { disagreements, type ReleaseFiles } from './agreement.ts'

const files = [
  { name: 'tables/0001_first.sql', text: '-- compatible-from: 1\n' },
  { name: 'functions/price.sql', text: 'CREATE FUNCTION :"schema".price(item integer) RETURNS integer …' },
]
const description = 'function price(item integer) returns integer language sql stable\n  body 0123\n'
const manifest = {
  version: '1.2.0',
  description: 'd',
  license: 'MIT',
  keywords: ['k'],
  homepage: 'https://site.example',
  bugs: 'https://host.example/owner/name/issues',
  repository: { type: 'git', url: 'git+https://host.example/owner/name.git' },
  engines: { node: '>=20' },
}
const good: ReleaseFiles = {
  manifest,
  lockfile: { version: '1.2.0', packages: { '': { version: '1.2.0' } } },
  changelog: '# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2027-01-31\n',
  signatures: listSignatures({ files, description }, '1.2.0'),
  files,
  description,
  tag: 'v1.2.0',
}

test('finds nothing where everything agrees', () => {
  expect(disagreements(good)).toEqual([])
})

const preRelease = {
  manifest: { ...manifest, version: '1.3.0-rc.1', publishConfig: { tag: 'next' } },
  lockfile: { version: '1.3.0-rc.1', packages: { '': { version: '1.3.0-rc.1' } } },
  changelog: '## [1.3.0-rc.1] - 2027-02-28\n',
  signatures: listSignatures({ files, description }, '1.3.0-rc.1'),
  tag: 'v1.3.0-rc.1',
}

test('finds nothing where a pre-release names its tag', () => {
  expect(disagreements({ ...good, ...preRelease })).toEqual([])
})

test.each<[string, Partial<ReleaseFiles>, string]>([
  [
    'a pre-release that npm would publish as latest',
    { ...preRelease, manifest: { ...preRelease.manifest, publishConfig: undefined } as never },
    'publishConfig.tag is undefined, and version 1.3.0-rc.1 is published as next',
  ],
  [
    'a release that npm would publish as next',
    { manifest: { ...manifest, publishConfig: { tag: 'next' } } },
    'publishConfig.tag is next, and version 1.2.0 is published as latest',
  ],
  ['a tag of another version', { tag: 'v1.2.1' }, 'The tag is v1.2.1'],
  [
    'a lockfile of another version',
    { lockfile: { version: '1.1.0', packages: {} } },
    'package-lock.json is of version',
  ],
  ['no heading in the changelog', { changelog: '## [Unreleased]\n' }, 'CHANGELOG.md has no heading'],
  ['signatures of another release', { signatures: listSignatures({ files, description }, 'none') }, 'npm run schema'],
  ['a signature that has changed since', { description: description.replace('item', 'product') }, 'another signature'],
  ['no repository', { manifest: { ...manifest, repository: undefined } as never }, 'no field "repository"'],
  [
    'a repository that npm cannot compare',
    { manifest: { ...manifest, repository: { url: 'name' } } },
    'repository.url is name',
  ],
])('finds %s', (_, wrong, message) => {
  expect(disagreements({ ...good, ...wrong })).toEqual([expect.stringContaining(message)])
})
