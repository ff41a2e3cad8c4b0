/** Makes any text harmless in HTML and SVG, between tags and in quoted attributes. */
export function escape(text: string): string {
  return (
    text
      // What XML does not allow at all would make the whole picture unreadable.
      // oxlint-disable-next-line no-control-regex -- these are meant
      .replaceAll(/[\u0000-\u0008\u000B\u000C\u000E-\u001F\uFFFE\uFFFF]/g, '\uFFFD')
      .toWellFormed()
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      .replaceAll('"', '&quot;')
      .replaceAll("'", '&#39;')
  )
}

type Attributes = Readonly<Record<string, string | number | undefined>>

/** One element; `content` is markup already. */
export function element(name: string, attributes: Attributes, content = ''): string {
  const written = Object.entries(attributes)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}="${escape(typeof value === 'number' ? number(value) : String(value))}"`)
    .join('')
  return content === '' ? `<${name}${written}/>` : `<${name}${written}>${content}</${name}>`
}

/** A line of text in a picture. */
export function textLine(
  x: number,
  y: number,
  size: number,
  content: string,
  look: string,
  anchor?: 'middle' | 'end',
): string {
  return element('text', { x, y, 'font-size': size, class: look.trim(), 'text-anchor': anchor }, escape(content) || ' ')
}

function number(value: number): string {
  return String(Math.round(value * 10) / 10)
}
