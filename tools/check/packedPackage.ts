import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Check, Fault } from './check.ts'
import { installConsumer, tryConsumer } from './consumer.ts'
import { root } from './repository.ts'
import { type Manifest, manifest, type Tarball, tarball } from './tarball.ts'

/** What a user gets from the registry: the tarball, installed into an empty project and used there. */
export const packedPackage: Check = {
  name: 'package',
  async run() {
    const packed = await tarball()
    const known = [
      ...contentFaults(packed),
      ...pictureFaults(packed, await readFile(join(root, 'README.md'), 'utf8')),
      ...manifestFaults(await manifest()),
    ]
    const consumer = await mkdtemp(join(tmpdir(), 'lockstep-consumer-'))
    try {
      const installed = await installConsumer(consumer, packed.path)
      if (installed.faults.length > 0) return { faults: [...known, ...installed.faults] }
      const tried = await tryConsumer(consumer, await manifest(installed.packageDirectory))
      const faults = [...known, ...(await machineFaults(installed.packageDirectory, packed)), ...tried.faults]
      const kilobytes = Math.ceil(packed.sizeBytes / 1000)
      return { faults, note: `${packed.files.length} files, ${kilobytes} kB; ${tried.done.join(', ')}` }
    } finally {
      await rm(consumer, { recursive: true, force: true })
    }
  },
}

function contentFaults(packed: Tarball): Fault[] {
  const unwanted = packed.files.filter(
    (file) =>
      /(^|[./])(test|test-d|spec|conformance|bench)\.[^/]+$/.test(file) ||
      // But for the race lab: `prove` is a command of the package.
      /(^|\/)(__tests__|tests?|fixtures|tools|proofs|bench|desk|examples|node_modules)\//.test(
        file.replace(/^dist\/lab\/(proofs|tools)\//, ''),
      ) ||
      // Sources travel inside the source maps; a stray .ts would be compiled by the user's own tsc.
      (/\.[cm]?tsx?$/.test(file) && !file.endsWith('.d.ts')),
  )
  const missing = ['LICENSE', 'README.md', 'SECURITY.md', 'package.json', 'sbom.cdx.json'].filter(
    (file) => !packed.files.includes(file),
  )
  return [
    ...unwanted.map((file) => `${file} does not belong in the package`),
    ...missing.map((file) => `the package lacks ${file}`),
  ]
}

/** Outside the repository, a page of the package has only the package's own pictures. */
function pictureFaults(packed: Tarball, readme: string): Fault[] {
  return [...readme.matchAll(/!\[[^\]]*\]\(([^)]+)\)/g)]
    .map(([, picture = '']) => picture)
    .filter((picture) => !/^https?:/.test(picture) && !packed.files.includes(picture))
    .map((picture) => `the package lacks ${picture}, which README.md shows`)
}

function manifestFaults({ dependencies, optionalDependencies, bundleDependencies }: Manifest): Fault[] {
  const count = Object.keys({ ...dependencies, ...optionalDependencies }).length
  return count > 0 || bundleDependencies !== undefined ? ['the package has dependencies; it promises none'] : []
}

async function machineFaults(directory: string, packed: Tarball): Promise<Fault[]> {
  const texts = await Promise.all(packed.files.map((file) => readFile(join(directory, file), 'utf8')))
  return packed.files
    .filter((_, index) => texts[index]?.includes(`${root}/`))
    .map((file) => `${file} contains the path it was built in`)
}
