import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Check, type Fault, faultsOf } from './check.ts'
import { command, type CommandResult } from './command.ts'
import { root, tool } from './repository.ts'

export const lint: Check = {
  name: 'lint',
  async run() {
    const result = await command(tool('oxlint'), ['--deny-warnings', '--report-unused-disable-directives'], {
      cwd: root,
    })
    const blind = await blindness()
    const faults = [...faultsOf(result, 'oxlint'), ...blind]
    return blind.length > 0 ? { faults } : { faults, note: 'and it saw a planted floating promise' }
  },
}

// Without its type-aware half oxlint stays green and silent about promises. A forgotten await is the very bug this
// library exists to prevent, so the linter is made to find one before its silence is believed.
const floating = `import pg from 'pg'
const pool = new pg.Pool()
export function forget(): void {
  pool.query('select 1')
}
`
const awaited = `import pg from 'pg'
const pool = new pg.Pool()
export async function wait(): Promise<void> {
  await pool.query('select 1')
}
`

async function blindness(): Promise<Fault[]> {
  const directory = await mkdtemp(join(tmpdir(), 'lockstep-lint-'))
  try {
    await symlink(join(root, 'node_modules'), join(directory, 'node_modules'))
    await writeFile(join(directory, 'package.json'), '{"type":"module"}\n')
    await writeFile(
      join(directory, 'tsconfig.json'),
      JSON.stringify({ extends: join(root, 'tsconfig.json'), include: ['*.ts'] }),
    )
    await writeFile(join(directory, 'floating.ts'), floating)
    await writeFile(join(directory, 'awaited.ts'), awaited)
    const seen = await lintOne(directory, 'floating.ts')
    const passed = await lintOne(directory, 'awaited.ts')
    const faults: Fault[] = []
    if (seen.code === 0 || !seen.output.includes('no-floating-promises')) {
      faults.push(`self-test: oxlint did not see a floating pool.query()\n${seen.output.trimEnd()}`)
    }
    // The control: a linter that refuses everything would see the floating one too.
    if (passed.code !== 0) faults.push(`self-test: oxlint refused an awaited pool.query()\n${passed.output.trimEnd()}`)
    return faults
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

function lintOne(directory: string, file: string): Promise<CommandResult> {
  return command(tool('oxlint'), ['--deny-warnings', '-c', join(root, '.oxlintrc.json'), file], { cwd: directory })
}
