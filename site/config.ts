/** The configuration of VitePress, which loads it through .vitepress/config.js. */
import { readFileSync } from 'node:fs'
import { anchorOf } from '../tools/check/tidy/documentLinks.ts'
import { apiSection } from './apiReference.ts'
import { type Item, sections } from './navigation.ts'

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  readonly version: string
}

const firstOf = (text: string): string => sections.find((section) => section.text === text)?.items[0]?.link ?? '/'
const top = (text: string, link: string): Item => ({ text, link })

export const siteConfig = {
  title: 'Lockstep',
  description: 'Correct concurrency on the PostgreSQL you already have',
  lang: 'en-US',
  srcDir: '.pages',
  outDir: 'dist',
  lastUpdated: false,
  // A link that leads nowhere stops the build.
  ignoreDeadLinks: false,
  // The anchors that GitHub makes: links between the pages work there and here.
  markdown: { anchor: { slugify: anchorOf }, languageAlias: { promql: 'sql' } },
  themeConfig: {
    nav: [
      top('Guide', '/guides/getting-started'),
      top('Operate', firstOf('Operate')),
      top('Reference', firstOf('Reference')),
      top('API', '/api/'),
      top(`v${version}`, '/project/changelog'),
    ],
    sidebar: [
      ...sections.map((section) => ({ ...section, collapsed: section.text !== 'Start' })),
      { ...apiSection(), collapsed: true },
    ],
    outline: { level: [2, 3] },
    search: { provider: 'local' },
  },
}
