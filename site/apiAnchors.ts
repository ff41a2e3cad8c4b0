import { posix } from 'node:path'
import { anchorsOf, linksOf } from '../tools/check/tidy/documentLinks.ts'

/**
 * The pages of the API reference, with links to anchors that their headings have. TypeDoc numbers some anchors (`#name-1`) although no other
 * heading of the page has the name.
 */
export function withExistingAnchors(pages: ReadonlyMap<string, string>): Map<string, string> {
  const anchors = new Map([...pages].map(([path, text]) => [path, anchorsOf(text)]))
  return new Map([...pages].map(([path, text]) => [path, repaired(path, text, anchors)]))
}

function repaired(path: string, text: string, anchors: ReadonlyMap<string, ReadonlySet<string>>): string {
  let result = ''
  let end = 0
  for (const { href, offset } of linksOf(text)) {
    const [file = '', anchor = ''] = href.split('#', 2)
    const target = anchors.get(file === '' ? path : posix.join(posix.dirname(path), file))
    const plain = anchor.replace(/-\d+$/, '')
    if (target === undefined || target.has(anchor) || !target.has(plain)) continue
    result += `${text.slice(end, offset)}${file}#${plain}`
    end = offset + href.length
  }
  return result + text.slice(end)
}
