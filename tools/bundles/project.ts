import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { installConsumer, linkOurs } from '../check/consumer.ts'

export const bundlesFolder = import.meta.dirname
const app = join(bundlesFolder, 'app')

/** A user's project outside the repository: the program that is bundled, and the packed package in its node_modules. */
export interface Project extends AsyncDisposable {
  readonly directory: string
  /** A folder below which nothing else can be imported. */
  readonly emptyFolder: () => Promise<string>
}

export async function makeProject(tarballPath: string): Promise<Project> {
  const parent = await mkdtemp(join(tmpdir(), 'lockstep-bundles-'))
  const directory = join(parent, 'project')
  let folders = 0
  try {
    await mkdir(directory)
    const { faults } = await installConsumer(directory, tarballPath)
    if (faults.length > 0) throw new Error(faults.join('\n'))
    for (const file of ['work.js', 'server.js']) await cp(join(app, file), join(directory, file))
    await cp(join(app, 'next'), join(directory, 'app'), { recursive: true })
    await linkOurs(directory, ['pg'])
  } catch (error) {
    await rm(parent, { recursive: true, force: true })
    throw error
  }
  return {
    directory,
    async emptyFolder() {
      const folder = join(parent, `built-${++folders}`)
      await mkdir(folder)
      return folder
    },
    [Symbol.asyncDispose]: () => rm(parent, { recursive: true, force: true }),
  }
}
