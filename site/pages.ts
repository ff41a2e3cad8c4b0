/**
 * The pages of the site, made from the repository: docs/ as it is, the pages of the root, and whatever these link to. Nothing is written
 * twice: the Markdown in docs/ stays readable on its own, and its relative links become links of the site here.
 */
import { posix } from 'node:path'
import { linksOf } from '../tools/check/tidy/documentLinks.ts'
import { placesOf, type Tree } from '../tools/check/tidy/tree.ts'

export interface Site {
  /** The Markdown of each page, by its path in the site: `guides/kafka.md`. */
  readonly pages: ReadonlyMap<string, string>
  /** Files that are served as they are: path in the site, path in the repository. */
  readonly assets: ReadonlyMap<string, string>
}

const home = 'site/index.md'

const renamed: Readonly<Record<string, string>> = {
  [home]: 'index.md',
  'README.md': 'index.md',
  'docs/README.md': 'contents.md',
  'ARCHITECTURE.md': 'project/architecture.md',
  'CHANGELOG.md': 'project/changelog.md',
  'CONTRIBUTING.md': 'project/contributing.md',
  'SECURITY.md': 'project/security.md',
}

const asset = /\.(?:svg|png|webp|json|ya?ml)$/
/** Files of a folder that explain nothing. */
const unlisted = /\.(?:svg|png|webp)$|package-lock\.json$|\/\.[^/]+$/

/** Where a file or a folder of the repository is in the site. To VitePress, brackets in a path are a parameter. */
export function sitePath(original: string): string {
  const path = original.replaceAll(/[[\]]/g, '_')
  const fixed = renamed[path]
  if (fixed !== undefined) return fixed
  if (path.startsWith('docs/') && !path.endsWith('.md')) return path.slice('docs/'.length)
  if (path.startsWith('docs/')) return path.slice('docs/'.length).replace(/(^|\/)README\.md$/, '$1index.md')
  if (path.endsWith('README.md')) return `source/${path.replace(/README\.md$/, 'index.md')}`
  return path.endsWith('.md') ? `source/${path}` : `source/${path}.md`
}

/** Everything that the site consists of, apart from the API reference. */
export function sitePages(tree: Tree): Site {
  const pages = new Map<string, string>()
  const assets = new Map<string, string>()
  const places = placesOf(tree)
  const isFile = new Set(tree.files)
  const queue = [
    home,
    ...Object.keys(renamed).filter((path) => path !== 'README.md' && path !== home),
    ...tree.files.filter((path) => path.startsWith('docs/') && path.endsWith('.md')),
  ]
  const add = (path: string): void => {
    const to = sitePath(path)
    if (pages.has(to) || assets.has(to)) return
    if (path.startsWith('docs/') && asset.test(path)) {
      assets.set(to, path)
      return
    }
    if (!isFile.has(path)) {
      pages.set(to, listing(path, tree))
      for (const file of listed(path, tree)) add(file)
      return
    }
    if (!path.endsWith('.md')) {
      pages.set(to, source(path, tree.read(path)))
      return
    }
    const { text, targets } = withSiteLinks(path, tree.read(path), places)
    pages.set(to, text)
    for (const target of targets) add(target)
  }
  for (const path of queue) add(path)
  return { pages, assets }
}

/** The page with links of the site, and what they lead to. */
function withSiteLinks(
  path: string,
  text: string,
  places: ReadonlySet<string>,
): { readonly text: string; readonly targets: string[] } {
  const targets: string[] = []
  let result = ''
  let end = 0
  for (const { href, offset } of linksOf(text)) {
    if (/^(?:[a-z][a-z0-9+.-]*:|\/|#)/i.test(href)) continue
    const [relative = '', anchor] = href.split('#', 2)
    const target = posix.join(posix.dirname(path), decodeURI(relative)).replace(/\/$/, '')
    if (!places.has(target)) throw new Error(`${path} links to ${target}, which does not exist.`)
    targets.push(target)
    const link = `/${sitePath(target)}${anchor === undefined ? '' : `#${anchor}`}`
    result += text.slice(end, offset) + link
    end = offset + href.length
  }
  return { text: result + text.slice(end), targets }
}

const languages: Readonly<Record<string, string>> = {
  cjs: 'js',
  js: 'js',
  json: 'json',
  mjs: 'js',
  sql: 'sql',
  ts: 'ts',
  tsx: 'tsx',
  yaml: 'yaml',
  yml: 'yaml',
}

/** A file of the repository that a page links to. The search leaves it out: it would hide the pages that explain it. */
function source(path: string, text: string): string {
  const language = languages[posix.extname(path).slice(1)] ?? 'txt'
  return `---\nsearch: false\n---\n\n# ${posix.basename(path)}\n\n\`${path}\` of the repository.\n\n\`\`\`\`\`${language}\n${text}\`\`\`\`\`\n`
}

function listed(folder: string, tree: Tree): string[] {
  return tree.files.filter((file) => file.startsWith(`${folder}/`) && !unlisted.test(file))
}

function listing(path: string, tree: Tree): string {
  const lines = listed(path, tree).map((file) => `- [${file.slice(path.length + 1)}](/${sitePath(file)})`)
  return `---\nsearch: false\n---\n\n# ${path}\n\n${lines.join('\n')}\n`
}
