import { cp, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build as esbuild } from 'esbuild'
import { build as vite } from 'vite'
import { copyPackages, nextProgram } from '../apps/nextApp.ts'
import { command } from '../check/command.ts'
import { bundlesFolder, type Project } from './project.ts'

/** A server that was bundled, ready to be started. */
export interface Bundle {
  readonly program: string
  readonly args: (port: number) => readonly string[]
  readonly cwd: string
}

export interface Bundler {
  readonly name: string
  /** Whether it is installed in tools/bundles, and not with the repository. */
  readonly large: boolean
  /** Bundles the program as it is, without any setting for the library. What it makes runs without the package. */
  build(project: Project): Promise<Bundle>
}

/** Node takes the kind of a module from the nearest package.json. */
async function nodeBundle(folder: string, type: 'commonjs' | 'module'): Promise<Bundle> {
  await writeFile(join(folder, 'package.json'), JSON.stringify({ type }))
  return { program: process.execPath, args: () => ['--enable-source-maps', 'server.js'], cwd: folder }
}

const withEsbuild: Bundler = {
  name: 'esbuild',
  large: false,
  async build({ directory, emptyFolder }) {
    const folder = await emptyFolder()
    const outfile = join(folder, 'server.js')
    const entryPoints = [join(directory, 'server.js')]
    await esbuild({ entryPoints, outfile, bundle: true, platform: 'node', minify: true, logLevel: 'error' })
    return nodeBundle(folder, 'commonjs')
  },
}

const withVite: Bundler = {
  name: 'Vite SSR',
  large: false,
  async build({ directory, emptyFolder }) {
    const folder = await emptyFolder()
    await vite({
      root: directory,
      configFile: false,
      logLevel: 'error',
      // Otherwise Vite leaves packages where they are, and there is nothing to show.
      ssr: { noExternal: true },
      build: { ssr: 'server.js', outDir: folder, emptyOutDir: true, minify: true },
    })
    return nodeBundle(folder, 'module')
  },
}

const bunProgram = join(bundlesFolder, 'node_modules', '.bin', 'bun')

function withBun(target: 'bun' | 'node'): Bundler {
  return {
    name: `Bun, for ${target === 'bun' ? 'Bun' : 'Node'}`,
    large: true,
    async build({ directory, emptyFolder }) {
      const folder = await emptyFolder()
      await run(bunProgram, ['build', 'server.js', `--target=${target}`, '--minify', `--outdir=${folder}`], directory)
      const bundle = await nodeBundle(folder, 'module')
      return target === 'node' ? bundle : { ...bundle, program: bunProgram, args: () => ['server.js'] }
    },
  }
}

function withNext(compiler: 'turbopack' | 'webpack'): Bundler {
  return {
    name: `Next.js, ${compiler === 'turbopack' ? 'Turbopack' : 'webpack'}`,
    large: true,
    async build(project) {
      // Turbopack refuses packages that are links out of the project.
      const folder = await project.emptyFolder()
      const packages = join(folder, 'node_modules')
      await copyPackages(join(bundlesFolder, 'node_modules'), packages)
      const library = join(packages, 'pg-lockstep')
      await cp(join(project.directory, 'node_modules', 'pg-lockstep'), library, { recursive: true })
      for (const part of ['app', 'work.js', 'package.json']) {
        await cp(join(project.directory, part), join(folder, part), { recursive: true })
      }
      const next = nextProgram(folder)
      await run(process.execPath, [next, 'build', `--${compiler}`], folder)
      await rename(library, join(await project.emptyFolder(), 'pg-lockstep'))
      return {
        program: process.execPath,
        args: (port) => [next, 'start', '--hostname', '127.0.0.1', '--port', String(port)],
        cwd: folder,
      }
    },
  }
}

async function run(program: string, args: readonly string[], cwd: string): Promise<void> {
  const { code, output } = await command(program, args, { cwd, env: { NEXT_TELEMETRY_DISABLED: '1' } })
  if (code !== 0) throw new Error(`${program} ${args.join(' ')} exited with ${code}\n${output}`)
}

export const bundlers: readonly Bundler[] = [
  withEsbuild,
  withVite,
  withBun('node'),
  withBun('bun'),
  withNext('turbopack'),
  withNext('webpack'),
]
