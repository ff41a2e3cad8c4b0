import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { findProgram } from '../../../tools/server/findProgram.ts'

const directory = fileURLToPath(new URL('.', import.meta.url))
const BUILT = `${directory}node_modules/node-rdkafka/build/Release/node-librdkafka.node`
/** What librdkafka is built against. */
const HEADERS = ['libssl-dev', 'zlib1g-dev', 'libsasl2-dev', 'libzstd-dev']

/** Builds the native client, where that has not been done yet: it takes some minutes. */
export function ensureClient(): void {
  if (existsSync(BUILT)) return
  const run = (program: string, args: readonly string[]): boolean => {
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
    return spawnSync(program, args, { cwd: directory, env, stdio: ['ignore', 2, 2] }).status === 0
  }
  if (process.getuid?.() === 0 && findProgram('apt-get') !== undefined) {
    run('apt-get', ['-qq', 'update'])
    run('apt-get', ['-qq', 'install', '--yes', '--no-install-recommends', ...HEADERS])
  }
  if (!run('npm', ['ci']) || !existsSync(BUILT)) {
    throw new Error(`node-rdkafka could not be built: it needs a compiler, make, python3 and ${HEADERS.join(', ')}`)
  }
}
