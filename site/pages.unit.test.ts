import { expect, test } from 'vitest'
import { root } from '../tools/check/repository.ts'
import { treeOf } from '../tools/check/tidy/tree.ts'
import { workingTree } from '../tools/check/tidy/workingTree.ts'
import { sections } from './navigation.ts'
import { sitePages, sitePath } from './pages.ts'

const ROOT_PAGES = {
  'site/index.md': '# Home',
  'README.md': '# Lockstep',
  'docs/README.md': '# Documentation',
  'ARCHITECTURE.md': '# Architecture',
  'CHANGELOG.md': '# Changelog',
  'CONTRIBUTING.md': '# Contributing',
  'SECURITY.md': '# Security',
}

test.each([
  ['docs/guides/kafka.md', 'guides/kafka.md'],
  ['docs/README.md', 'contents.md'],
  ['docs/decisions/README.md', 'decisions/index.md'],
  ['docs/pictures/one-event.svg', 'pictures/one-event.svg'],
  ['ARCHITECTURE.md', 'project/architecture.md'],
  ['README.md', 'index.md'],
  ['examples/transfer.ts', 'source/examples/transfer.ts.md'],
  ['examples/nest/README.md', 'source/examples/nest/index.md'],
])('puts %s at %s', (from, to) => {
  expect(sitePath(from)).toBe(to)
})

test('turns links into links of the site, and brings what they lead to', () => {
  const { pages, assets } = sitePages(
    treeOf({
      ...ROOT_PAGES,
      'docs/guides/a.md':
        '[b](../reference/b.md#part) [`code`](../../examples/a.ts) ![p](../pictures/p.svg) [all](../../examples) [x](https://x.example)\n\n`[not](a.md)`',
      'docs/reference/b.md': '# B\n\n## Part',
      'docs/pictures/p.svg': '<svg/>',
      'examples/a.ts': 'const a = 1\n',
      'examples/unlinked.txt': '',
    }),
  )
  expect(pages.get('guides/a.md')).toBe(
    '[b](/reference/b.md#part) [`code`](/source/examples/a.ts.md) ![p](/pictures/p.svg) [all](/source/examples.md) [x](https://x.example)\n\n`[not](a.md)`',
  )
  expect(pages.get('source/examples/a.ts.md')).toContain('`````ts\nconst a = 1\n`````')
  expect(pages.get('source/examples.md')).toContain('- [a.ts](/source/examples/a.ts.md)')
  expect([...assets]).toEqual([['pictures/p.svg', 'docs/pictures/p.svg']])
})

test('begins with the recording of the race, and a still picture where less motion is asked for', async () => {
  const { pages, assets } = sitePages(await workingTree(root))
  const home = pages.get('index.md')
  expect(home).toContain('src="/pictures/race.webp"')
  expect(home).toContain('media="(prefers-reduced-motion: reduce)"')
  expect([...assets]).toEqual(
    expect.arrayContaining([
      ['pictures/race.webp', 'docs/pictures/race.webp'],
      ['pictures/race-trades.png', 'docs/pictures/race-trades.png'],
    ]),
  )
})

test('refuses a link that leads nowhere', () => {
  expect(() => sitePages(treeOf({ ...ROOT_PAGES, 'docs/a.md': '[b](b.md)' }))).toThrow(
    'docs/b.md, which does not exist',
  )
})

test('has every page of the documentation in the sidebar, once', async () => {
  const { pages } = sitePages(await workingTree(root))
  const links = sections.flatMap(({ items }) => items.map(({ link }) => `${link.slice(1)}.md`))
  const expected = [...pages.keys()].filter((path) => !/^(?:source\/|decisions\/\d|index\.md$)/.test(path))
  expect(links.toSorted()).toEqual(expected.toSorted())
})
