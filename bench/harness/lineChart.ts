import { escape, show, STYLE } from './barChart.ts'

/** What grows, and the cost at each step. */
export interface Line {
  readonly label: string
  readonly points: readonly (readonly [x: number, y: number])[]
}

export interface LineChart {
  readonly title: string
  /** What the numbers are, and of which run. */
  readonly subtitle: string
  /** What grows. */
  readonly along: string
  /** By what it grows from one mark of the axis to the next: 10, or 2. */
  readonly base: number
  readonly lines: readonly Line[]
}

const WIDTH = 760
const HEIGHT = 380
const LEFT = 70
const RIGHT = 150
const TOP = 70
const BOTTOM = 50
const COLORS = 3

/** Both axes are logarithmic: a cost that stays the same is level, and one that grows as fast as what grows climbs evenly. */
export function lineChart({ title, subtitle, along, base, lines }: LineChart): string {
  const points = lines.flatMap((line) => line.points)
  const x = scale(
    points.map(([each]) => each),
    base,
    LEFT,
    WIDTH - RIGHT,
  )
  const y = scale(
    points.map(([, each]) => each),
    10,
    HEIGHT - BOTTOM,
    TOP,
  )
  const grid = [
    ...y.marks.map(
      (mark) =>
        `<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y.at(mark)}" y2="${y.at(mark)}"/>
  <text x="${LEFT - 8}" y="${y.at(mark)}" text-anchor="end">${show(mark)}</text>`,
    ),
    ...x.marks.map(
      (mark) => `<text x="${x.at(mark)}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle">${show(mark)}</text>`,
    ),
  ]
  const drawn = lines.map(({ label, points: own }, place) => {
    const places = own.map(([across, up]) => `${x.at(across)},${y.at(up)}`)
    const [lastX, lastY] = own.at(-1) ?? [1, 1]
    return [
      `<polyline class="line line-${place % COLORS}" points="${places.join(' ')}"/>`,
      ...places.map((each) => {
        const [cx, cy] = each.split(',')
        return `<circle class="dot-${place % COLORS}" cx="${cx}" cy="${cy}" r="3"/>`
      }),
      `<text class="own" x="${x.at(lastX) + 10}" y="${y.at(lastY)}">${escape(label)}, ${show(lastY)}</text>`,
    ].join('\n  ')
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img" aria-label="${escape(describe(title, lines))}">
  <title>${escape(title)}</title>
  <style>${STYLE}
    .grid { stroke: #d0d7de }
    .line { fill: none; stroke-width: 2 }
    .line-0 { stroke: #0969da } .dot-0 { fill: #0969da }
    .line-1 { stroke: #bf3989 } .dot-1 { fill: #bf3989 }
    .line-2 { stroke: #9a6700 } .dot-2 { fill: #9a6700 }
    @media (prefers-color-scheme: dark) {
      .grid { stroke: #30363d }
      .line-0 { stroke: #4493f8 } .dot-0 { fill: #4493f8 }
      .line-1 { stroke: #f778ba } .dot-1 { fill: #f778ba }
      .line-2 { stroke: #d29922 } .dot-2 { fill: #d29922 }
    }
  </style>
  <text class="title" x="10" y="18">${escape(title)}</text>
  <text x="10" y="40">${escape(subtitle)}</text>
  ${grid.join('\n  ')}
  <text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 10}" text-anchor="middle">${escape(along)}</text>
  ${drawn.join('\n  ')}
</svg>
`
}

interface Scale {
  readonly marks: readonly number[]
  at(value: number): number
}

/** From the power of the base below the least to the one above the most. */
function scale(values: readonly number[], base: number, from: number, to: number): Scale {
  const log = (value: number): number => Math.log(value) / Math.log(base)
  // A power that was rounded is still that power.
  const low = Math.floor(log(Math.min(...values)) + 1e-9)
  const high = Math.max(low + 1, Math.ceil(log(Math.max(...values)) - 1e-9))
  return {
    marks: Array.from({ length: high - low + 1 }, (_, step) => base ** (low + step)),
    at: (value) => Math.round(from + ((log(value) - low) / (high - low)) * (to - from)),
  }
}

/** For screen readers. */
function describe(title: string, lines: readonly Line[]): string {
  const of = ({ label, points }: Line): string =>
    `${label} ${points.map(([across, up]) => `${show(up)} at ${show(across)}`).join(', ')}`
  return `${title}: ${lines.map(of).join('; ')}`
}
