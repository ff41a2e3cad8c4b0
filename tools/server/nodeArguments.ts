import { fileURLToPath } from 'node:url'

const ROOT = new URL('../../', import.meta.url)
const COMPILED = import.meta.url.endsWith('.js')

/**
 * What Node is given to run one of our files, named by its TypeScript. In the package, its JavaScript stands beside. In the repository,
 * tsx loads it; under `LOCKSTEP_BUILT=1`, which `npm test` sets after it has built everything, its JavaScript is taken, because a process
 * that begins with tsx costs a second, and the suite begins hundreds.
 */
export function nodeArguments(file: URL): string[] {
  const path = fileURLToPath(file)
  if (COMPILED) return [path.replace(/\.ts$/, '.js')]
  if (process.env['LOCKSTEP_BUILT'] !== '1') return ['--import', import.meta.resolve('tsx'), path]
  const fromRoot = path.slice(fileURLToPath(ROOT).length).replace(/\.ts$/, '.js')
  const built = fromRoot.startsWith('src/') ? fromRoot.replace(/^src/, 'dist') : `.built/${fromRoot}`
  return [fileURLToPath(new URL(built, ROOT))]
}
