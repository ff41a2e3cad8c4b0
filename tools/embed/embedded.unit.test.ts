import { expect, test } from 'vitest'
import { embeddedModules } from './embedded.ts'

const modules = embeddedModules()

function call(module: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(module).map(([name, read]) => [name, (read as () => unknown)()]))
}

test.each(modules)('publishes a module with the same exports and results as $path', async (each) => {
  const published = (await import(`data:text/javascript,${encodeURIComponent(each.text)}`)) as object
  const repository = (await import(
    /* @vite-ignore */ new URL(`../../src/${each.path}.ts`, import.meta.url).href
  )) as object
  expect(call(published)).toEqual(call(repository))
})

test('publishes the migrations, without imports', () => {
  expect(modules[0]?.text).toContain('CREATE')
  for (const { text } of modules) expect(text).not.toMatch(/^import|import\.meta/m)
})
