/** `npm run release:check [-- --tag vX.Y.Z]`: whether what is released agrees with itself. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { sqlFiles } from '../../src/postgres/index.ts'
import { root } from '../check/repository.ts'
import { dumpFile } from '../schema/dump.ts'
import { signaturesFile } from '../schema/signatures.ts'
import { disagreements, type ReleaseFiles } from './agreement.ts'

const { values } = parseArgs({ options: { tag: { type: 'string' } } })
const text = (name: string): Promise<string> => readFile(join(root, name), 'utf8')

const found = disagreements({
  manifest: JSON.parse(await text('package.json')) as ReleaseFiles['manifest'],
  lockfile: JSON.parse(await text('package-lock.json')) as ReleaseFiles['lockfile'],
  changelog: await text('CHANGELOG.md'),
  signatures: await readFile(signaturesFile, 'utf8'),
  files: sqlFiles(),
  description: await readFile(dumpFile, 'utf8'),
  ...(values.tag === undefined ? {} : { tag: values.tag }),
})
for (const each of found) console.error(each)
if (found.length === 0) console.log('The release agrees with itself.')
process.exitCode = found.length === 0 ? 0 : 1
