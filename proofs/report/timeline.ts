import type { FaultEntry, History, Violation } from '../history.ts'
import { FLAG_INDENT, fixedWidth, proportionalWidth, shorten, wrapText } from './labels.ts'
import { drawLegend } from './legend.ts'
import { drawMark } from './marks.ts'
import {
  BAR_HEIGHT,
  EDGE,
  FLAG_ROW,
  FLAG_SIZE,
  type Layout,
  layout,
  OP_SIZE,
  PAD,
  type PlacedBar,
  type PlacedLane,
  type PlacedRow,
  PLOT_LEFT,
  WIDTH,
} from './layout.ts'
import { faultWord } from './faultNames.ts'
import { withShortOps } from './opNames.ts'
import { element, escape, textLine } from './markup.ts'
import { type Scene, sceneOf } from './scene.ts'
import { BREAK_WIDTH, duration } from './timeScale.ts'
import { colour, type Scheme, timelineStyle } from './timelineStyle.ts'

export interface TimelineOptions {
  /** Where it stands among others in one page: names inside the picture must not be the same. */
  readonly id?: string
  /** `auto` goes with the reader's. */
  readonly scheme?: Scheme
}

const WHAT_IT_IS: Readonly<Record<string, string>> = { outside: 'the world', database: 'PostgreSQL' }
const HEADLINE_SIZE = 20
const HEADLINE_ROW = 27

/** A picture of a violation: who did what when, and where the promise was broken. It is SVG that needs nothing else. */
export function timeline(history: History, violation: Violation, options: TimelineOptions = {}): string {
  const id = (options.id ?? 'race').replaceAll(/[^\w-]/g, '-')
  const scene = sceneOf(history, violation)
  const sentence = withShortOps(violation.text, violation.ops, history.scenario)
  const headline = wrapText(sentence, HEADLINE_SIZE, WIDTH - 2 * PAD, 4)
  const headlineEnd = 62 + (headline.length - 1) * HEADLINE_ROW
  const placed = layout(scene, headlineEnd + (scene.faults.length > 0 ? 72 : 52))
  const axis = placed.bottom + 22
  const legend = drawLegend(scene, axis + 32)
  const height = Math.ceil(legend.bottom + 24)
  const key = violation.key === '' ? '' : `, ${violation.key}`
  const subject = `${history.scenario}, ${history.form} form${key}`
  return element(
    'svg',
    {
      xmlns: 'http://www.w3.org/2000/svg',
      class: 'race',
      viewBox: `0 0 ${WIDTH} ${height}`,
      width: WIDTH,
      height: height,
      role: 'img',
      'aria-labelledby': `${id}-title ${id}-desc`,
    },
    [
      element('title', { id: `${id}-title` }, escape(`${violation.invariant} broken: ${subject}`)),
      element('desc', { id: `${id}-desc` }, escape(describe(scene, violation))),
      element('style', {}, timelineStyle(options.scheme ?? 'auto')),
      hatching(id),
      element('rect', { width: WIDTH, height: height, rx: 10, fill: 'var(--bg)' }),
      drawHead(violation, subject, headline),
      ...placed.lanes.map(drawLaneGround),
      drawAxis(placed, axis),
      drawFaults(scene, placed, id),
      drawTogether(scene, placed, id),
      drawMoment(scene, placed, violation),
      ...placed.lanes.map((lane) => drawLane(lane, placed)),
      legend.markup,
    ].join('\n'),
  )
}

/** The same for those who cannot see it. */
function describe(scene: Scene, violation: Violation): string {
  const lanes = scene.lanes.map(({ name, bars, marks }) => {
    const own = bars.filter(({ part }) => part !== undefined)
    const told = own.map(({ op, marks: of }) => `${op}: ${of.map(({ text }) => text).join(', ')}`)
    return `${name}: ${[...told, ...marks.map(({ text }) => text)].join('; ')}`
  })
  return [violation.text, ...lanes.filter((text) => !text.endsWith(': '))].join('\n')
}

function drawHead(violation: Violation, subject: string, headline: readonly string[]): string {
  const name = shorten(violation.invariant, 60)
  const pill = proportionalWidth(name, 13) + 20
  const rest = shorten(subject, Math.floor((WIDTH - 2 * PAD - pill - 20) / proportionalWidth('m', 13)))
  return [
    element('rect', { x: PAD, y: 18, width: pill, height: 22, rx: 11, fill: 'var(--red)' }),
    textLine(PAD + pill / 2, 33.5, 13, name, 'pill', 'middle'),
    textLine(PAD + pill + 10, 33.5, 13, rest, 'muted'),
    ...headline.map((line, index) => textLine(PAD, 66 + index * HEADLINE_ROW, HEADLINE_SIZE, line, 'strong')),
  ].join('')
}

function hatching(id: string): string {
  const stripes = (name: string, fill: string, turn: number): string =>
    element(
      'pattern',
      { id: `${id}-${name}`, width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: `rotate(${turn})` },
      element('rect', { width: 2.2, height: 7, fill }),
    )
  return element('defs', {}, stripes('fault', 'var(--fault)', 45) + stripes('breach', 'var(--red)', -45))
}

function drawLaneGround({ lane, top, bottom }: PlacedLane): string {
  const middle = (top + bottom) / 2
  const below = WHAT_IT_IS[lane.name] ?? (lane.name.endsWith("'") ? 'after a kill' : 'process')
  return [
    element('rect', {
      x: PAD - 10,
      y: top,
      width: WIDTH - 2 * PAD + 20,
      height: bottom - top,
      rx: 6,
      fill: 'var(--lane)',
    }),
    textLine(PAD + 4, middle + 1, 15, shorten(lane.name, 11), 'strong'),
    textLine(PAD + 4, middle + 15, 11.5, below, 'muted'),
  ].join('')
}

function drawAxis({ scale, top, bottom }: Layout, y: number): string {
  const taken: [left: number, right: number][] = []
  const label = (x: number, content: string): string => {
    const half = fixedWidth(content, 11.5) / 2
    const isTaken = taken.some(([left, right]) => x - half < right + 10 && x + half > left - 10)
    if (isTaken || x + half > WIDTH - PAD / 2) return ''
    taken.push([x - half, x + half])
    return textLine(x, y, 11.5, content, 'fixed muted', 'middle')
  }
  const breaks = scale.breaks.map(({ x, from, to }) => {
    const slant = (at: number): string => `M${(at + 3).toFixed(1)},${top - 4}L${(at - 3).toFixed(1)},${bottom + 4}`
    const edges = {
      d: slant(x) + slant(x + BREAK_WIDTH),
      stroke: 'var(--muted)',
      fill: 'none',
      'stroke-dasharray': '2 3',
    }
    return [
      element('rect', { x, y: top, width: BREAK_WIDTH, height: bottom - top, fill: 'var(--bg)', opacity: 0.7 }),
      element('path', edges),
      label(x + BREAK_WIDTH / 2, `+${duration(to - from)}`),
    ].join('')
  })
  const ticks = scale.ticks().map(({ x, text }) => {
    const line = { x1: x, x2: x, y1: top, y2: bottom + 5, stroke: 'var(--grid)' }
    return element('line', line) + label(x, text)
  })
  return [...ticks, ...breaks].join('')
}

function drawFaults(scene: Scene, placed: Layout, id: string): string {
  const band = (fault: FaultEntry, top: number, bottom: number, fill: string, opacity: number): string => {
    const left = placed.scale.x(fault.at)
    const width = Math.max(3, placed.scale.x(fault.until) - left)
    return element('rect', { x: left, y: top, width, height: bottom - top, fill, opacity })
  }
  const lanes = placed.lanes.flatMap(({ lane, top, bottom }) =>
    lane.faults.flatMap((each) => [
      band(each, top, bottom, 'var(--fault)', 0.1),
      band(each, top, bottom, `url(#${id}-fault)`, 0.25),
    ]),
  )
  const whole = scene.faults.flatMap((each) => [
    band(each, placed.top, placed.bottom, 'var(--fault)', 0.1),
    band(each, placed.top - 5, placed.top, 'var(--fault)', 0.8),
  ])
  let free = -Infinity
  const names = scene.faults
    .toSorted((one, other) => one.at - other.at)
    .map((each) => {
      const x = placed.scale.x(each.at)
      const name = shorten(
        `${faultWord(each.fault)} (database)`,
        Math.floor((EDGE - x - 16) / fixedWidth('m', FLAG_SIZE)),
      )
      if (x < free) return ''
      free = x + fixedWidth(name, FLAG_SIZE) + 24
      return bolt(x, placed.top - 42) + textLine(x + 9, placed.top - 38, FLAG_SIZE, name, 'fixed fault')
    })
  return [...lanes, ...whole, ...names].join('')
}

/** A flash of lightning. */
function bolt(x: number, y: number): string {
  const at = (dx: number, dy: number): string => `${(x + dx).toFixed(1)},${(y + dy).toFixed(1)}`
  const points = [at(1.5, -7), at(-4.5, 1.5), at(-0.5, 1.5), at(-1.5, 7.5), at(4.5, -1.5), at(0.5, -1.5)]
  return element('polygon', { points: points.join(' '), fill: 'var(--fault)' })
}

/** The time in which all held it at once, over all lanes concerned. */
function drawTogether({ together }: Scene, { scale, lanes }: Layout, id: string): string {
  if (together === undefined) return ''
  const concerned = lanes.filter(({ lane }) => lane.bars.some(({ part }) => part !== undefined))
  const [left, right] = [scale.x(together.from), scale.x(together.to)]
  const [top, bottom] = [concerned[0]?.top ?? 0, concerned.at(-1)?.bottom ?? 0]
  const place = { x: left, y: top, width: Math.max(2, right - left), height: bottom - top }
  return (
    element('rect', { ...place, fill: 'var(--red)', opacity: 0.12 }) +
    element('rect', { ...place, fill: `url(#${id}-breach)`, opacity: 0.14 }) +
    element('rect', { ...place, fill: 'none', stroke: 'var(--red)', 'stroke-opacity': 0.55 })
  )
}

function drawMoment(scene: Scene, { scale, top, bottom }: Layout, violation: Violation): string {
  const x = scale.x(scene.at)
  const label = 'broken here'
  const half = proportionalWidth(label, 12) / 2 + 8
  const middle = Math.min(Math.max(x, PAD + half), EDGE - half)
  return [
    element('line', {
      x1: x,
      x2: x,
      y1: top - 8,
      y2: bottom,
      stroke: 'var(--red)',
      'stroke-width': 1.6,
      'stroke-dasharray': '5 3',
    }),
    element('path', { d: `M${(x - 5).toFixed(1)},${top - 10}h10l-5,7z`, fill: 'var(--red)' }),
    element(
      'rect',
      { x: middle - half, y: top - 29, width: half * 2, height: 20, rx: 10, fill: 'var(--red)' },
      element('title', {}, escape(violation.text)),
    ),
    textLine(middle, top - 15, 12, label, 'pill', 'middle'),
  ].join('')
}

function drawLane(placed: PlacedLane, { scale }: Layout): string {
  const first = placed.top + 10
  const faults = placed.faults.map(({ x, row, text: name }) => {
    const y = first + row * FLAG_ROW + 11
    return bolt(x, y - 4) + textLine(x + 9, y, FLAG_SIZE, name, 'fixed fault halo')
  })
  return [...faults, ...placed.rows.map((row) => drawRow(row, scale.x(scale.to)))].join('')
}

function drawRow(row: PlacedRow, right: number): string {
  const line =
    row.bars.length > 0
      ? ''
      : element('line', {
          x1: PLOT_LEFT + 10,
          x2: right,
          y1: row.middle,
          y2: row.middle,
          stroke: 'var(--pale)',
          'stroke-width': 2,
        })
  const under = row.middle + BAR_HEIGHT / 2
  const flags = row.flags.map(({ x, row: below, text: content, part, isBreach }) => {
    const y = under + 13 + below * FLAG_ROW
    const stem = {
      x1: x,
      x2: x,
      y1: row.middle + 5,
      y2: y,
      stroke: isBreach ? 'var(--red)' : 'currentColor',
      opacity: 0.7,
    }
    const look = isBreach ? 'breach' : part === undefined ? 'muted' : ''
    return element(
      'g',
      { class: colour(part) },
      element('line', stem) + textLine(x + FLAG_INDENT, y, FLAG_SIZE, content, `fixed halo ${look}`),
    )
  })
  const marks = row.marks.map(({ mark, x }) =>
    element('g', { class: colour(mark.part) }, drawMark(mark, x, row.middle)),
  )
  return [line, ...row.bars.map((bar) => drawBar(bar, row.middle)), ...flags, ...marks].join('')
}

function drawBar({ bar, left, right, label, labelX, solid, sure }: PlacedBar, middle: number): string {
  const y = middle - BAR_HEIGHT / 2
  const isPale = bar.part === undefined
  const body = { x: left, y, width: right - left, height: BAR_HEIGHT, rx: 4 }
  const outline = { fill: 'none', stroke: 'currentColor', 'stroke-opacity': 0.75 }
  const holds = solid.map(([from, to]) =>
    element('rect', {
      ...body,
      x: from,
      width: Math.max(2, to - from),
      fill: 'currentColor',
      opacity: isPale ? 0.4 : 1,
    }),
  )
  return element(
    'g',
    { class: colour(bar.part) },
    [
      element('rect', { ...body, fill: 'currentColor', opacity: isPale ? 0.22 : 0.17 }),
      // A pale one may be cut off at the edge: without an outline that does not look like its end.
      isPale
        ? ''
        : element('rect', { ...body, ...outline, 'stroke-dasharray': bar.to === undefined ? '4 3' : undefined }),
      ...holds,
      isPale ? '' : drawSure(sure, middle),
      textLine(labelX, y - 5, OP_SIZE, label, `fixed halo ${isPale ? 'muted' : 'own strong'}`),
    ].join(''),
  )
}

/** Ticks, not more than a reader can distinguish. */
function drawSure(sure: readonly number[], middle: number): string {
  let last = -Infinity
  const ticks = sure.filter((x) => {
    const isApart = x - last >= 4
    if (isApart) last = x
    return isApart
  })
  const d = ticks.map((x) => `M${x.toFixed(1)},${(middle - 4).toFixed(1)}v8`).join('')
  return d === '' ? '' : element('path', { d, stroke: 'var(--on)', 'stroke-width': 1.2, opacity: 0.75 })
}
