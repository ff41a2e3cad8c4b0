import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type Check, type Fault, faultsOf } from './check.ts'
import { command } from './command.ts'
import { root, tool } from './repository.ts'

const CONFIG = '.oxlintrc.json'

export const lint: Check = {
  name: 'lint',
  async run() {
    const result = await command(tool('oxlint'), ['--deny-warnings', '--report-unused-disable-directives'], {
      cwd: root,
    })
    const faults = [...faultsOf(result, 'oxlint'), ...(await selfTestFaults())]
    return { faults, note: `and it found ${planted.filter(({ rule }) => rule !== undefined).length} planted faults` }
  },
}

const pool = `import pg from 'pg'\nconst pool = new pg.Pool()\n`

// Without its type-aware half, oxlint reports no promises, and no error either. An override whose pattern matches no file is silent, too.
// So oxlint has to find these faults before its silence counts; files without a rule are the controls.
const planted: readonly { readonly file: string; readonly text: string; readonly rule?: string }[] = [
  {
    file: 'floating.ts',
    text: `${pool}export function forget(): void {\n  pool.query('select 1')\n}\n`,
    rule: 'no-floating-promises',
  },
  {
    file: 'awaited.ts',
    text: `${pool}export async function wait(): Promise<void> {\n  await pool.query('select 1')\n}\n`,
  },
  { file: 'src/locks/acquire.ts', text: `console.log('acquired')\n`, rule: 'no-console' },
  { file: 'src/locks/release.ts', text: `process.stderr.write('released')\n`, rule: 'no-restricted-properties' },
  { file: 'src/locks/key.unit.test.ts', text: `console.log('tested')\n` },
  { file: 'src/cli/main.ts', text: `console.log('help')\nprocess.stdout.write('more')\n` },
]

async function selfTestFaults(): Promise<Fault[]> {
  const directory = await mkdtemp(join(tmpdir(), 'lockstep-lint-'))
  try {
    await symlink(join(root, 'node_modules'), join(directory, 'node_modules'))
    await cp(join(root, CONFIG), join(directory, CONFIG))
    const tsconfig = JSON.stringify({ extends: join(root, 'tsconfig.json'), include: ['**/*.ts'] })
    for (const { file, text } of [...planted, { file: 'tsconfig.json', text: tsconfig }]) {
      await mkdir(dirname(join(directory, file)), { recursive: true })
      await writeFile(join(directory, file), text)
    }
    const { output } = await command(tool('oxlint'), ['--deny-warnings', '--format=unix'], { cwd: directory })
    return planted.flatMap(({ file, rule }) => {
      const lines = output.split('\n').filter((line) => line.startsWith(`${file}:`))
      const right = rule === undefined ? lines.length === 0 : lines.some((line) => line.includes(`(${rule})`))
      return right ? [] : [`self-test: oxlint should report ${rule ?? 'nothing'} in ${file}\n${output.trimEnd()}`]
    })
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}
