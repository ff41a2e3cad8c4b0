import { execFile } from 'node:child_process'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type Bill, withBundled } from './bill.ts'
import { closureOf, importedBy, type LockedPackage } from './bundled.ts'

/** Writes the software bill of materials, which `npm pack` puts into the package. It reads the lockfile and asks no registry. */

const root = new URL('../../', import.meta.url).pathname

async function readJson(file: string): Promise<unknown> {
  return JSON.parse(await readFile(join(root, file), 'utf8')) as unknown
}

async function importsOfPage(): Promise<string[]> {
  const files = await readdir(join(root, 'console/src'), { recursive: true })
  const sources = files.filter((file) => /\.(?:tsx?|css)$/.test(file) && !file.includes('.test.'))
  const texts = await Promise.all(sources.map((file) => readFile(join(root, 'console/src', file), 'utf8')))
  return [...new Set(texts.flatMap(importedBy))].filter((name) => name !== 'pg-lockstep')
}

const { stdout } = await promisify(execFile)(
  'npm',
  ['sbom', '--sbom-format=cyclonedx', '--sbom-type=library', '--omit=dev', '--package-lock-only', '--workspaces=false'],
  { cwd: root },
)
const { name, version } = (await readJson('package.json')) as { name: string; version: string }
const { packages } = (await readJson('package-lock.json')) as { packages: Record<string, LockedPackage> }
const bill = withBundled(JSON.parse(stdout) as Bill, name, version, closureOf(await importsOfPage(), packages))
await writeFile(join(root, 'sbom.cdx.json'), `${JSON.stringify(bill, null, 2)}\n`)
