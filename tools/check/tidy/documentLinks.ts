import { posix } from 'node:path'
import { blanked, proseOf } from './page.ts'
import { type Finding, lineAt, placesOf, type Rule, type Tree } from './tree.ts'

/**
 * Every relative link of every Markdown page leads to a file that is there, and its anchor to a heading. Hand-written because
 * remark-validate-links needs 170 packages, and it and others look at the disk: there, a link to a file that git ignores passes.
 */
export const documentLinks: Rule = {
  name: 'document-links',
  find(tree) {
    const places = placesOf(tree)
    return tree.files
      .filter((file) => file.endsWith('.md'))
      .flatMap((file) => linksOf(tree.read(file)).flatMap((link) => judge(tree, places, file, link)))
  },
}

export interface Link {
  readonly href: string
  readonly line: number
  /** Where the address begins in the page. */
  readonly offset: number
}

function judge(tree: Tree, places: ReadonlySet<string>, file: string, { href, line }: Link): Finding[] {
  // An address with a scheme leads out of the repository; this check never touches the network.
  if (/^(?:[a-z][a-z0-9+.-]*:|\/\/)/i.test(href)) return []
  const [path = '', anchor] = href.split('#', 2)
  const target = path === '' ? file : posix.join(posix.dirname(file), decodeURI(path)).replace(/\/$/, '')
  if (target.startsWith('..') || path.startsWith('/')) return [{ file, line, message: `${href} leaves the repository` }]
  if (target !== '.' && !places.has(target)) return [{ file, line, message: `${href} leads nowhere` }]
  if (anchor === undefined || !target.endsWith('.md') || anchorsOf(tree.read(target)).has(anchor)) return []
  return [{ file, line, message: `${target} has no heading #${anchor}` }]
}

/** The links of a page, in the order in which they occur. */
export function linksOf(text: string): Link[] {
  const prose = withoutCode(text)
  const inline = prose.matchAll(/\]\(\s*<?([^)<>\s]+)>?(?:\s+"[^"]*")?\s*\)/g)
  const references = prose.matchAll(/^ {0,3}\[[^\]^]+\]:\s*<?([^\s<>]+)>?/gm)
  const tags = prose.matchAll(/<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)="([^"]+)"/g)
  return [...inline, ...references, ...tags]
    .map((match) => {
      const href = match[1] ?? ''
      return { href, line: lineAt(prose, match.index), offset: match.index + match[0].lastIndexOf(href) }
    })
    .toSorted((one, other) => one.offset - other.offset)
}

/** Headings as GitHub names them, repeated ones numbered, and anchors written by hand. */
export function anchorsOf(text: string): ReadonlySet<string> {
  const anchors = new Set<string>()
  const prose = proseOf(text)
  for (const [, heading = ''] of prose.matchAll(/^#{1,6}\s+(.+?)\s*#*$/gm)) {
    const slug = anchorOf(heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1'))
    let anchor = slug
    for (let count = 1; anchors.has(anchor); count += 1) anchor = `${slug}-${count}`
    anchors.add(anchor)
  }
  for (const [, id = ''] of prose.matchAll(/\b(?:id|name)="([^"]+)"/g)) anchors.add(id)
  return anchors
}

/** The anchor of a heading, as GitHub makes it. */
export function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')
}

function withoutCode(text: string): string {
  return proseOf(text).replaceAll(/(`+)(?!`)[^]*?[^`]\1(?!`)/g, blanked)
}
