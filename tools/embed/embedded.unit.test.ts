import { expect, test } from 'vitest'
import { embeddedModules } from './embedded.ts'

const modules = embeddedModules()

function call(module: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(module).map(([name, read]) => [name, (read as () => unknown)()]))
}

test.each(modules)(
  '$path: what is published exports and returns the same as what is in the repository',
  async (each) => {
    const published = (await import(`data:text/javascript,${encodeURIComponent(each.text)}`)) as object
    const repository = (await import(
      /* @vite-ignore */ new URL(`../../src/${each.path}.ts`, import.meta.url).href
    )) as object
    expect(call(published)).toEqual(call(repository))
  },
)

test('what is published contains the migrations and imports nothing', () => {
  expect(modules[0]?.text).toContain('CREATE')
  for (const { text } of modules) expect(text).not.toMatch(/^import|import\.meta/m)
})
