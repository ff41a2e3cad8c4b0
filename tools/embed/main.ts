/** Run by `npm run build`: writes the modules that contain files over those that read them. */
import { rmSync, writeFileSync } from 'node:fs'
import { pageContents } from '../../src/console/pageContents.ts'
import { embeddedModules } from './embedded.ts'

if (!pageContents().some(({ path }) => path === 'index.html')) {
  throw new Error('The page of the console is not built. Run `npm run build:page` first.')
}
for (const { path, text } of embeddedModules()) {
  const file = new URL(`../../dist/${path}.js`, import.meta.url)
  writeFileSync(file, text)
  // It describes the module that was there before.
  rmSync(new URL(`${file.href}.map`))
}
