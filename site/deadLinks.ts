/**
 * Links and pictures of the built pages that lead to no file of the site, or to no heading of the page. The build checks the Markdown, but
 * neither anchors nor the links of its own layout.
 */
export function deadLinks(pages: ReadonlyMap<string, string>, files: ReadonlySet<string>): string[] {
  const anchors = new Map([...pages].map(([page, html]) => [page, new Set(valuesOf(/\sid="([^"]+)"/g, html))]))
  return [...pages].flatMap(([page, html]) =>
    valuesOf(/<(?:a|img|source)\b[^>]*?\s(?:href|src|srcset)="([^"]+)"/g, html)
      .filter((href) => !leads(href, page, anchors, files))
      .map((href) => `${page}: ${href}`),
  )
}

function leads(
  href: string,
  page: string,
  anchors: ReadonlyMap<string, ReadonlySet<string>>,
  files: ReadonlySet<string>,
): boolean {
  const { protocol, pathname, hash } = new URL(href.replaceAll('&amp;', '&'), `site://site/${page}`)
  // An address with a scheme leads out of the site; this check never touches the network.
  if (protocol !== 'site:') return true
  const path = decodeURIComponent(pathname).slice(1)
  const file = path === '' || path.endsWith('/') ? `${path}index.html` : path
  const target = files.has(file) ? file : `${file}.html`
  const anchor = decodeURIComponent(hash).slice(1)
  return files.has(target) && (anchor === '' || anchors.get(target)?.has(anchor) === true)
}

function valuesOf(pattern: RegExp, html: string): string[] {
  return [...html.matchAll(pattern)].map(([, value = '']) => value)
}
