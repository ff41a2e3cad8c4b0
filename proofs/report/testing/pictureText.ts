import type { Box } from '../labels.ts'

export interface PictureText {
  readonly text: string
  readonly look: string
  readonly box: Box
}

/** The texts of a picture and the room they take, read from the picture itself by the widths of DejaVu, a wide font. */
export function textsOf(svg: string): PictureText[] {
  return [...svg.matchAll(/<text ([^>]*)>([^<]*)<\/text>/g)].map(([, attributes = '', content = '']) => {
    const of = (name: string): string => new RegExp(`(?:^| )${name}="([^"]*)"`).exec(attributes)?.[1] ?? ''
    const [x, y, size, look] = [Number(of('x')), Number(of('y')), Number(of('font-size')), of('class')]
    const text = unescape(content)
    const width = Array.from(text).length * size * (look.includes('fixed') ? 0.602 : 0.56)
    const left = of('text-anchor') === 'middle' ? x - width / 2 : x
    return { text, look, box: { left, right: left + width, top: y - size * 0.76, bottom: y + size * 0.22 } }
  })
}

/** Pairs of texts that lie on each other. */
export function overlaps(texts: readonly PictureText[]): string[] {
  return texts.flatMap((one, index) =>
    texts
      .slice(index + 1)
      .filter((other) => meet(one.box, other.box))
      .map((other) => `${one.text} | ${other.text}`),
  )
}

function meet(one: Box, other: Box): boolean {
  return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom
}

function unescape(text: string): string {
  return text
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&')
}

/** What is wrong with a piece of XML, or nothing. Only what we write is understood: anything else is wrong. */
export function brokenXml(xml: string): string | undefined {
  const open: string[] = []
  let rest = xml.trim()
  while (rest !== '') {
    const tag = /^<(\/?)([a-zA-Z]+)((?:\s+[\w:-]+="[^"<]*")*)(\/?)>/.exec(rest)
    const words = /^(?:[^<&]|&(?:lt|gt|amp|quot|#39);)+/.exec(rest)
    if (tag === null && words === null) return `not understood: ${rest.slice(0, 60)}`
    const [, slash, name = '', , selfClosing] = tag ?? []
    if (slash === '/' && open.pop() !== name) return `</${name}> closes something else`
    if (tag !== null && slash === '' && selfClosing === '') open.push(name)
    rest = rest.slice((tag ?? words)?.[0].length)
  }
  return open.length === 0 ? undefined : `<${open.at(-1)}> is not closed`
}
