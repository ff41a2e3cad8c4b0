/**
 * The documentation site, built from docs/ with VitePress.
 *
 *     npm run docs           serves it, and shows changes of docs/ at once
 *     npm run docs:build     builds it into site/dist, for any static host
 *
 * What it needs is a package of its own, installed when first needed.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { watch } from 'node:fs'
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { root } from '../tools/check/repository.ts'
import { workingTree } from '../tools/check/tidy/workingTree.ts'
import { areInstalled, install } from '../tools/dependencies.ts'
import { ensureOrms } from '../tools/orms/load.ts'
import { writeApiReference } from './apiReference.ts'
import { sitePages } from './pages.ts'

const folder = join(root, 'site')
const pagesFolder = join(folder, '.pages')

async function writePages(): Promise<void> {
  const { pages, assets } = sitePages(await workingTree(root))
  for (const [path, text] of pages) await writeIfChanged(join(pagesFolder, path), text)
  for (const [path, from] of assets) {
    await mkdir(dirname(join(pagesFolder, 'public', path)), { recursive: true })
    await cp(join(root, from), join(pagesFolder, 'public', path))
  }
}

/** VitePress reloads what is written, so a page that is the same is left alone. */
async function writeIfChanged(file: string, text: string): Promise<void> {
  if ((await readFile(file, 'utf8').catch(() => undefined)) === text) return
  await mkdir(dirname(file), { recursive: true })
  await writeFile(file, text)
}

function writePagesOnChange(): void {
  let pending: NodeJS.Timeout | undefined
  watch(join(root, 'docs'), { recursive: true }, () => {
    clearTimeout(pending)
    pending = setTimeout(() => {
      writePages().catch((error: unknown) => console.error(error))
    }, 100)
  })
}

async function vitepress(...args: string[]): Promise<number> {
  const program = join(folder, 'node_modules', 'vitepress', 'bin', 'vitepress.js')
  const child = spawn(process.execPath, [program, ...args], { cwd: folder, stdio: 'inherit' })
  const [code] = (await once(child, 'exit')) as [number | null]
  return code ?? 1
}

const [command, ...rest] = process.argv.slice(2)
if (!areInstalled(folder)) {
  process.stderr.write('installing VitePress and TypeDoc in site/\n')
  install(folder)
}
ensureOrms()
await rm(pagesFolder, { recursive: true, force: true })
await writeApiReference(join(pagesFolder, 'api'))
await writePages()
if (command === 'serve') writePagesOnChange()
process.exitCode = await vitepress(command === 'serve' ? 'dev' : 'build', '.', ...rest)
process.exit()
