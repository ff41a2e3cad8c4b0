import { expect, test } from 'vitest'
import { withBundled } from './bill.ts'
import { closureOf, importedBy } from './bundled.ts'

test('finds the packages that a source imports, but not its own files', () => {
  const source = `
    import { render } from 'preact'
    import { signal } from '@preact/signals'
    import 'uplot/dist/uPlot.min.css'
    import { header } from './header.tsx'
    const late = import('preact/hooks')
    export { x } from "node:fs"`
  expect(importedBy(source)).toEqual(['preact', '@preact/signals', 'uplot'])
})

test('follows dependencies of packages, each once, and rejects packages that the lockfile does not have', () => {
  const locked = {
    'node_modules/a': { version: '1.0.0', dependencies: { b: '*' } },
    'node_modules/b': { version: '2.0.0', dependencies: { a: '*' } },
  }
  expect(closureOf(['a'], locked).map(({ name }) => name)).toEqual(['a', 'b'])
  expect(() => closureOf(['c'], locked)).toThrow('package-lock.json has no c')
})

test('adds the bundled packages to the bill with their hashes, and sets the name of the package', () => {
  const bill = {
    bomFormat: 'CycloneDX',
    metadata: { component: { name: 'folder', 'bom-ref': 'own@1.0.0' } },
    components: [],
    dependencies: [],
  }
  const bundled = [
    { name: '@s/a', version: '1.0.0', license: 'MIT', integrity: `sha512-${Buffer.from('x').toString('base64')}` },
  ]
  expect(withBundled(bill, 'own', '1.0.0', bundled)).toMatchObject({
    bomFormat: 'CycloneDX',
    metadata: { component: { name: 'own' } },
    components: [{ name: '@s/a', purl: 'pkg:npm/%40s/a@1.0.0', hashes: [{ alg: 'SHA-512', content: '78' }] }],
    dependencies: [
      { ref: 'own@1.0.0', dependsOn: ['@s/a@1.0.0'] },
      { ref: '@s/a@1.0.0', dependsOn: [] },
    ],
  })
})
