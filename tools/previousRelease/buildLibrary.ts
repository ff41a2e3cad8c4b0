import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

/** The library as it was at a commit, compiled. */
export interface BuiltLibrary {
  /** The commit, in full. */
  readonly commit: string
  readonly folder: string
  /** Its `pg-lockstep`. */
  readonly entry: URL
}

/** The clone does not have the commit, or is none. */
export class CommitMissingError extends Error {
  override readonly name = 'CommitMissingError'
  /** A clone that has only the newest commits, and could not fetch another. */
  readonly inShallowClone: boolean

  constructor(revision: string, inShallowClone: boolean) {
    super(
      `The clone does not have the commit ${revision}. Run: git fetch origin ${revision}; or git fetch --unshallow.`,
    )
    this.inShallowClone = inShallowClone
  }
}

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
/** Inside the repository, so that Node finds its `node_modules`. */
const FOLDER = join(ROOT, '.lockstep', 'libraries')
/** What the library is made of: the compiled files read `sql/` and `package.json`. */
const PARTS = ['src', 'sql', 'package.json', 'tsconfig.json']
const TSCONFIG = {
  extends: './tsconfig.json',
  compilerOptions: { noEmit: false, noCheck: true, outDir: 'dist', rootDir: 'src', paths: {} },
  include: ['src'],
  exclude: ['src/**/*.test.ts', 'src/**/*.test-d.ts', 'src/**/*.conformance.ts'],
}
const LARGEST_ARCHIVE_BYTES = 256 * 1024 * 1024

/** Compiles the library of a commit, a tag or a branch, once: it is kept in `.lockstep`. Takes about a second. */
export function buildLibrary(revision: string): BuiltLibrary {
  const commit = commitOf(revision)
  const folder = join(FOLDER, commit)
  if (!existsSync(folder)) build(commit, folder)
  return { commit, folder, entry: pathToFileURL(join(folder, 'dist', 'index.js')) }
}

/** Somewhere else, and moved into its place as a whole: two processes may build at once, and one may be killed. */
function build(commit: string, folder: string): void {
  mkdirSync(FOLDER, { recursive: true })
  const unfinished = mkdtempSync(join(FOLDER, 'unfinished-'))
  try {
    const archive = run('git', ['archive', commit, ...PARTS])
    run('tar', ['-x', '-C', unfinished], archive)
    writeFileSync(join(unfinished, 'tsconfig.library.json'), JSON.stringify(TSCONFIG))
    const tsc = fileURLToPath(new URL('node_modules/@typescript/native/bin/tsc', pathToFileURL(ROOT)))
    run(process.execPath, [tsc, '-p', join(unfinished, 'tsconfig.library.json')])
    renameSync(unfinished, folder)
  } catch (error) {
    if (!existsSync(folder)) throw error
  } finally {
    rmSync(unfinished, { recursive: true, force: true })
  }
}

function commitOf(revision: string): string {
  const found = resolve(revision) ?? (fetchOf(revision) ? resolve(revision) : undefined)
  if (found !== undefined) return found
  throw new CommitMissingError(revision, isShallow())
}

function resolve(revision: string): string | undefined {
  const { status, stdout } = spawnSync('git', ['rev-parse', '--verify', '--quiet', `${revision}^{commit}`], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  return status === 0 ? stdout.trim() : undefined
}

/** A shallow clone can ask for one commit more. */
function fetchOf(revision: string): boolean {
  if (!isShallow()) return false
  return spawnSync('git', ['fetch', '--quiet', '--depth', '1', 'origin', revision], { cwd: ROOT }).status === 0
}

function isShallow(): boolean {
  const { stdout } = spawnSync('git', ['rev-parse', '--is-shallow-repository'], { cwd: ROOT, encoding: 'utf8' })
  return stdout?.trim() === 'true'
}

function run(program: string, args: readonly string[], input?: Buffer): Buffer {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd: ROOT,
    maxBuffer: LARGEST_ARCHIVE_BYTES,
    ...(input === undefined ? {} : { input }),
  })
  if (status === 0) return stdout
  throw new Error(`${program} ${args.join(' ')} failed: ${error?.message ?? `${String(stdout)}${String(stderr)}`}`)
}
