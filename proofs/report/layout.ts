import { ENDS, type FaultEntry } from '../history.ts'
import { fixedWidth, placeFlags, type PlacedFlag, shorten } from './labels.ts'
import type { Bar, Lane, Mark, Scene } from './scene.ts'
import { faultWord } from './faultNames.ts'
import { timeScale, type TimeScale } from './timeScale.ts'

/** Where everything stands. All numbers are pixels. */
export interface Layout {
  readonly scale: TimeScale
  readonly lanes: readonly PlacedLane[]
  readonly top: number
  readonly bottom: number
}

export interface PlacedLane {
  readonly lane: Lane
  readonly top: number
  readonly bottom: number
  /** Labels of faults, above the rows. */
  readonly faults: readonly PlacedFlag<FaultFlag>[]
  readonly rows: readonly PlacedRow[]
}

/** Adjacent bars, and below them the texts of their marks. In a lane without bars: marks on a line. */
export interface PlacedRow {
  readonly bars: readonly PlacedBar[]
  readonly marks: readonly PlacedMark[]
  readonly flags: readonly PlacedFlag<MarkFlag>[]
  /** The middle of the bars. */
  readonly middle: number
}

export interface PlacedBar {
  readonly bar: Bar
  readonly left: number
  readonly right: number
  readonly label: string
  readonly labelX: number
  /** From where to where it is solid. */
  readonly solid: readonly (readonly [left: number, right: number])[]
  /** The moments at which it was sure. */
  readonly sure: readonly number[]
}

export interface PlacedMark {
  readonly mark: Mark
  readonly x: number
}

export interface MarkFlag {
  readonly x: number
  readonly text: string
  readonly weight: number
  readonly part: number | undefined
  readonly isBreach: boolean
}

export interface FaultFlag {
  readonly x: number
  readonly text: string
  readonly weight: number
  readonly fault: FaultEntry
}

export const WIDTH = 1200
export const PAD = 28
/** Time goes from here to there; to the right of it is room for the last texts. */
export const PLOT_LEFT = 140
const PLOT_RIGHT = 1040
export const EDGE = WIDTH - PAD
export const BAR_HEIGHT = 18
export const OP_SIZE = 11.5
export const FLAG_SIZE = 12
export const FLAG_ROW = 16
const OP_ROW = 17
const LANE_PAD = 10
const MOST_FLAG_ROWS = 6
const MOST_PALE_FLAG_ROWS = 1
/** What else a process did at the same time, in one lane. */
const MOST_PALE_ROWS = 2
/** Marks that are nearer to each other share one text. */
const SAME_PLACE = 5

export function layout(scene: Scene, top: number): Layout {
  const scale = timeScale(scene.points, PLOT_LEFT + 10, PLOT_RIGHT)
  let y = top
  const lanes = scene.lanes
    .map((lane) => visible(lane, scale))
    .filter(isSomething)
    .map((lane) => {
      const placed = placeLane(lane, scale, y)
      y = placed.bottom + 4
      return placed
    })
  return { scale, lanes, top, bottom: Math.max(y - 4, top + 20) }
}

/** Without the pale ones that lie wholly in a stretch that is left out. */
function visible(lane: Lane, scale: TimeScale): Lane {
  const reaches = ({ from, to = Infinity }: Bar): boolean =>
    from <= scale.to && to >= scale.from && !scale.breaks.some((each) => from > each.from && to < each.to)
  return { ...lane, bars: lane.bars.filter((bar) => bar.part !== undefined || reaches(bar)) }
}

function isSomething({ bars, marks }: Lane): boolean {
  return bars.length + marks.length > 0
}

function placeLane(lane: Lane, scale: TimeScale, top: number): PlacedLane {
  const faults = placeFlags(
    lane.faults.map((fault) => ({
      x: scale.x(fault.at),
      text: fitting(faultWord(fault.fault), scale.x(fault.at)),
      weight: 1,
      fault,
    })),
    FLAG_SIZE,
    2,
  )
  let y = top + LANE_PAD + rowsOf(faults) * FLAG_ROW
  const rows = [...(lane.marks.length > 0 ? [[]] : []), ...packed(lane, scale)].map((bars) => {
    const groups = bars.length === 0 ? [lane.marks] : bars.map(({ bar }) => bar.marks)
    const shown = groups.map((marks) => marks.filter(({ at }) => scale.shows(at)))
    const isPale = bars.length > 0 && bars.every(({ bar }) => bar.part === undefined)
    const flags = flagsOf(shown, scale, isPale ? MOST_PALE_FLAG_ROWS : MOST_FLAG_ROWS)
    const middle = y + (bars.length === 0 ? 4 : OP_ROW) + BAR_HEIGHT / 2
    y = middle + BAR_HEIGHT / 2 + rowsOf(flags) * FLAG_ROW + (flags.length > 0 ? 6 : 4)
    return { bars, marks: shown.flat().map((mark) => ({ mark, x: scale.x(mark.at) })), flags, middle }
  })
  return { lane, top, bottom: y + LANE_PAD - 6, faults, rows }
}

/** Bars of one process that were in progress at once stand below each other; those of the violation first. */
function packed(lane: Lane, scale: TimeScale): PlacedBar[][] {
  const rows: PlacedBar[][] = []
  const isPale = (bar: Bar): number => (bar.part === undefined ? 1 : 0)
  for (const bar of lane.bars.toSorted((one, other) => isPale(one) - isPale(other) || one.from - other.from)) {
    const placed = placeBar(bar, lane, scale)
    // The pale ones have texts that may be dropped, the others not: they keep apart.
    const row = rows.find((each) =>
      each.every((other) => isPale(other.bar) === isPale(bar) && !meets(extentOf(other), extentOf(placed))),
    )
    const paleRows = rows.filter(([first]) => first?.bar.part === undefined).length
    if (row !== undefined) row.push(placed)
    else if (bar.part !== undefined || paleRows < MOST_PALE_ROWS) rows.push([placed])
  }
  return rows
}

function placeBar(bar: Bar, lane: Lane, scale: TimeScale): PlacedBar {
  const left = scale.x(bar.from)
  const right = Math.max(scale.x(bar.to ?? deathOf(bar, lane) ?? scale.to), left + 3)
  const fence = bar.fence === undefined ? '' : ` · fence ${shorten(bar.fence, 12)}`
  const silence = bar.to === undefined ? ' · no end' : ''
  const label = `${shorten(bar.op, 40)}${fence}${silence}`
  return {
    bar,
    left,
    right,
    label,
    labelX: Math.min(left, EDGE - 6 - fixedWidth(label, OP_SIZE)),
    solid: bar.holds.map(({ from, to }) => [scale.x(from), scale.x(to)]),
    sure: bar.active.filter((at) => scale.shows(at)).map((at) => scale.x(at)),
  }
}

/** When a process was killed, nothing of it continued. */
function deathOf(bar: Bar, { faults }: Lane): number | undefined {
  const last = Math.max(bar.from, ...bar.active, ...bar.marks.map(({ at }) => at))
  return faults.find(({ at, fault }) => at >= last && /kill/i.test(fault))?.at
}

function extentOf({ left, right, label, labelX }: PlacedBar): [from: number, to: number] {
  return [Math.min(left, labelX), Math.max(right, labelX + fixedWidth(label, OP_SIZE)) + 14]
}

function meets(one: readonly [number, number], other: readonly [number, number]): boolean {
  return one[0] < other[1] && other[0] < one[1]
}

/** The texts of marks, those of one place in one text. */
function flagsOf(groups: readonly (readonly Mark[])[], scale: TimeScale, mostRows: number): PlacedFlag<MarkFlag>[] {
  const flags = groups.flatMap((marks) => {
    const texts: MarkFlag[] = []
    // Of an operation that has an end, its sign says enough of the release.
    const spoken = marks.filter(({ what, isBreach }) => what !== 'released' || isBreach || !marks.some(isEnd))
    for (const mark of spoken.toSorted((one, other) => one.at - other.at)) {
      const flag = flagOf(mark, scale.x(mark.at))
      const before = texts.at(-1)
      const joined = `${before?.text} · ${flag.text}`
      if (before !== undefined && belongTogether(before, flag) && fitting(joined, before.x) === joined) {
        const weight = Math.max(before.weight, flag.weight)
        texts[texts.length - 1] = { ...before, text: joined, weight, isBreach: before.isBreach || flag.isBreach }
      } else texts.push(flag)
    }
    return texts
  })
  return placeFlags(flags, FLAG_SIZE, mostRows)
}

function isEnd({ what }: Mark): boolean {
  return ENDS.has(what)
}

function belongTogether(before: MarkFlag, flag: MarkFlag): boolean {
  return flag.x - before.x < SAME_PLACE && flag.part === before.part
}

function flagOf(mark: Mark, x: number): MarkFlag {
  const weights = { done: 5, took: 5, found: 5, unknown: 5, failed: 4, wrote: 4, read: 3, granted: 2, released: 1 }
  const weight = mark.what === 'asked' || mark.what === 'active' ? 0 : weights[mark.what]
  const part = mark.part === undefined ? 0 : 10
  return {
    x,
    text: fitting(shorten(mark.text, 48), x, mark.short),
    weight: weight + part + (mark.isBreach ? 100 : 0),
    part: mark.part,
    isBreach: mark.isBreach,
  }
}

/** Cut where the picture ends. */
function fitting(text: string, x: number, shortForm = text): string {
  const room = Math.floor((EDGE - x - 14) / fixedWidth('m', FLAG_SIZE))
  return shorten(Array.from(text).length <= room ? text : shortForm, room)
}

function rowsOf(flags: readonly { readonly row: number }[]): number {
  return Math.max(-1, ...flags.map(({ row }) => row)) + 1
}
