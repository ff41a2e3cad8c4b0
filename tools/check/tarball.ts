import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { command } from './command.ts'
import { root } from './repository.ts'

export interface Tarball {
  readonly path: string
  /** What npm would publish, as paths inside the package. */
  readonly files: readonly string[]
  readonly sizeBytes: number
}

export interface Manifest {
  readonly name: string
  readonly version: string
  readonly exports: Readonly<Record<string, string>>
  readonly bin: Readonly<Record<string, string>>
  readonly peerDependencies: Readonly<Record<string, string>>
  readonly dependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
  readonly bundleDependencies?: unknown
}

export async function manifest(directory = root): Promise<Manifest> {
  // The shape is ours to keep: exportsMap.ts reports entries that are not plain strings.
  return JSON.parse(await readFile(join(directory, 'package.json'), 'utf8')) as Manifest
}

let packed: Promise<Tarball> | undefined

/** Builds and packs once a run: two checks need the tarball, and two builds into one dist/ would trip over each other. */
export function tarball(): Promise<Tarball> {
  if (packed === undefined) {
    packed = buildAndPack()
    return packed
  }
  // The first caller reports the reasons.
  return packed.catch(() => {
    throw new BuildError('the build or the pack, see the other check,', '')
  })
}

async function buildAndPack(): Promise<Tarball> {
  const build = await command('npm', ['run', 'build'], { cwd: root })
  if (build.code !== 0) throw new BuildError('npm run build', build.output)
  const bill = await command('npx', ['tsx', 'tools/sbom/main.ts'], { cwd: root })
  if (bill.code !== 0) throw new BuildError('tools/sbom/main.ts', bill.output)
  return pack()
}

/** Packs what is built already. */
export async function pack(): Promise<Tarball> {
  const directory = await mkdtemp(join(tmpdir(), 'lockstep-pack-'))
  process.once('beforeExit', () => void rm(directory, { recursive: true, force: true }))
  // prepack would build a second time.
  const packing = await command('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', directory], {
    cwd: root,
  })
  if (packing.code !== 0) throw new BuildError('npm pack', packing.output)
  const answer = JSON.parse(packing.stdout) as unknown
  const [first] = (Array.isArray(answer) ? answer : Object.values(answer as object)) as PackAnswer[]
  if (first === undefined) throw new BuildError('npm pack', 'npm packed nothing')
  return {
    path: join(directory, first.filename),
    files: first.files.map((file) => file.path).toSorted(),
    sizeBytes: first.size,
  }
}

interface PackAnswer {
  readonly filename: string
  readonly size: number
  readonly files: readonly { readonly path: string }[]
}

/** The compiler's words are the message; a stack through this file would only hide them. */
class BuildError extends Error {
  constructor(program: string, output: string) {
    super(`${program} failed\n${output.trimEnd()}`)
    this.stack = this.message
  }
}
