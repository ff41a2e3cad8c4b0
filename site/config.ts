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

/** In the page itself: a browser asks for a file of its own otherwise, which the host does not always serve. */
const ICON = readFileSync(new URL('../console/public/icon.svg', import.meta.url), 'utf8')

/** Colors that can be read: the name of a block's language, and the main button. The search button without its keys, which are not part of its name. */
const STYLE = `
  :root { --vp-code-lang-color: #57606a; --vp-button-brand-bg: #3451b2; --vp-button-brand-hover-bg: #2b4494 }
  .dark { --vp-code-lang-color: #b7bdc8 }
  .DocSearch-Button-Keys { display: none !important }
`

interface Token {
  readonly type: string
  readonly content: string
  tag: string
}

interface Markdown {
  readonly core: { readonly ruler: { push(name: string, rule: (state: { readonly tokens: Token[] }) => void): void } }
}

/** A header cell without text is a plain cell: a header has to say what it is the header of. */
function emptyHeadersAsCells(markdown: Markdown): void {
  markdown.core.ruler.push('empty-headers', ({ tokens }) => {
    for (const [index, open] of tokens.entries()) {
      const [text, close] = [tokens[index + 1], tokens[index + 2]]
      if (open.type === 'th_open' && text?.content === '' && close !== undefined) open.tag = close.tag = 'td'
    }
  })
}

export const siteConfig = {
  title: 'Lockstep',
  description: 'Correct concurrency on the PostgreSQL you already have',
  lang: 'en-US',
  srcDir: '.pages',
  outDir: 'dist',
  lastUpdated: false,
  // A link that leads nowhere stops the build.
  ignoreDeadLinks: false,
  head: [
    ['link', { rel: 'icon', href: `data:image/svg+xml,${encodeURIComponent(ICON)}` }],
    ['style', {}, STYLE],
  ],
  // The anchors that GitHub makes: links between the pages work there and here.
  markdown: {
    anchor: { slugify: anchorOf },
    languageAlias: { promql: 'sql' },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config: emptyHeadersAsCells,
  },
  // The first page of the theme has no main landmark.
  transformHtml: (html: string) =>
    html.replace('<div class="VPContent is-home"', '<div role="main" class="VPContent is-home"'),
  themeConfig: {
    nav: [
      top('Guide', '/guides/getting-started'),
      top('Operate', firstOf('Operate')),
      top('Reference', firstOf('Reference')),
      top('API', '/api/'),
      top(`v${version}`, '/project/changelog'),
    ],
    // Sections stay open: the theme puts the button that closes one inside another button.
    sidebar: [...sections, apiSection()],
    outline: { level: [2, 3] },
    search: { provider: 'local' },
  },
}
