/** One bar of a chart. */
export interface Bar {
  readonly label: string
  readonly value: number
  /** Ours is in another color. */
  readonly ours: boolean
}

export interface Chart {
  readonly title: string
  /** What the numbers are, and of which run. */
  readonly subtitle: string
  readonly bars: readonly Bar[]
}

const WIDTH = 760
const LABEL_WIDTH = 300
const VALUE_WIDTH = 90
const ROW = 28
const BAR = 16
const TOP = 62

/** Of all charts. */
export const STYLE = `
    text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #57606a; dominant-baseline: central }
    .title { font-size: 16px; font-weight: 600; fill: #1f2328 }
    .own { font-weight: 600; fill: #1f2328 }
    .ours { fill: #0969da }
    .theirs { fill: #8c959f }
    @media (prefers-color-scheme: dark) {
      text { fill: #9198a1 }
      .title, .own { fill: #f0f6fc }
      .ours { fill: #4493f8 }
      .theirs { fill: #656c76 }
    }`

/**
 * Horizontal bars from zero, as one SVG file without anything from elsewhere. The page's background shows through, and the colors follow
 * the reader's: it can be read in the light and in the dark.
 */
export function barChart({ title, subtitle, bars }: Chart): string {
  const most = Math.max(...bars.map(({ value }) => value))
  const room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
  const height = TOP + bars.length * ROW + 10
  const rows = bars.map(({ label, value, ours }, place) => {
    const y = TOP + place * ROW
    const width = Math.max(1, Math.round((value / most) * room))
    const middle = y + BAR / 2
    return [
      `<text class="${ours ? 'own' : 'label'}" x="${LABEL_WIDTH - 10}" y="${middle}" text-anchor="end">${escape(label)}</text>`,
      `<rect class="${ours ? 'ours' : 'theirs'}" x="${LABEL_WIDTH}" y="${y}" width="${width}" height="${BAR}" rx="2"/>`,
      `<text class="${ours ? 'own' : 'label'}" x="${LABEL_WIDTH + width + 8}" y="${middle}">${show(value)}</text>`,
    ].join('\n  ')
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escape(describe(title, bars))}">
  <title>${escape(title)}</title>
  <style>${STYLE}
  </style>
  <text class="title" x="10" y="18">${escape(title)}</text>
  <text x="10" y="40">${escape(subtitle)}</text>
  ${rows.join('\n  ')}
</svg>
`
}

/** For screen readers. */
function describe(title: string, bars: readonly Bar[]): string {
  return `${title}: ${bars.map(({ label, value }) => `${label} ${show(value)}`).join(', ')}`
}

/** 141,710; 0.87. */
export function show(value: number): string {
  const rounded = Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3))
  const [whole = '', rest] = String(rounded).split('.')
  const grouped = whole.replaceAll(/\B(?=(\d{3})+$)/g, ',')
  return rest === undefined ? grouped : `${grouped}.${rest}`
}

export function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}
