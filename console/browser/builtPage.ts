import { existsSync } from 'node:fs'
import { mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'

const CONSOLE = fileURLToPath(new URL('..', import.meta.url))

/** Has a page built from the sources as they are. Default: that of the console. */
export async function builtPage(root = CONSOLE): Promise<string> {
  const built = join(root, 'dist')
  const folders = ['src', 'public'].map((folder) => join(root, folder)).filter((folder) => existsSync(folder))
  const sources = (await Promise.all(folders.map(filesIn))).flat()
  const changed = await Promise.all(
    [...sources, ...['index.html', 'vite.config.ts'].map((file) => join(root, file))].map(ageOf),
  )
  const done = existsSync(join(built, 'index.html')) ? await ageOf(join(built, 'index.html')) : 0
  if (done > Math.max(...changed)) return built
  // Put in its place as a whole: another test may be reading what is there.
  const aside = await mkdtemp(join(root, '.building-'))
  try {
    await build({
      root,
      configFile: join(root, 'vite.config.ts'),
      logLevel: 'error',
      build: { outDir: join(aside, 'new') },
    })
    if (existsSync(built)) await rename(built, join(aside, 'old'))
    await rename(join(aside, 'new'), built)
  } finally {
    await rm(aside, { recursive: true, force: true })
  }
  return built
}

export async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
}

async function ageOf(file: string): Promise<number> {
  return (await stat(file)).mtimeMs
}
