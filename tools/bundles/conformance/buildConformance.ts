import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Compiler, makeNextProject, nextProgram } from '../../apps/nextApp.ts'
import { command } from '../../check/command.ts'
import { installConsumer } from '../../check/consumer.ts'
import { pack } from '../../check/tarball.ts'

export interface BuiltProject extends AsyncDisposable {
  readonly directory: string
}

/** Next.js with the routes of the suite, from the packed package. */
export async function buildConformance(compiler: Compiler): Promise<BuiltProject> {
  const parent = await mkdtemp(join(tmpdir(), 'lockstep-next-'))
  const dispose = (): Promise<void> => rm(parent, { recursive: true, force: true })
  try {
    const { packageDirectory, faults } = await installConsumer(parent, (await pack()).path)
    if (faults.length > 0) throw new Error(faults.join('\n'))
    const directory = join(parent, 'next')
    await makeNextProject(directory, join(import.meta.dirname, 'project'), packageDirectory)
    const { code, output } = await command(process.execPath, [nextProgram(directory), 'build', `--${compiler}`], {
      cwd: directory,
      env: { NEXT_TELEMETRY_DISABLED: '1' },
    })
    if (code !== 0) throw new Error(`next build --${compiler} exited with ${code}\n${output}`)
    return { directory, [Symbol.asyncDispose]: dispose }
  } catch (error) {
    await dispose()
    throw error
  }
}
