/** The width of a stretch in which nothing happens and which is left out. */
export const BREAK_WIDTH = 46
const MOST_BREAKS = 4
/** Only a stretch of this part of the whole is worth the trouble of leaving it out. */
const BREAK_FROM = 0.4
/** What began before the first point or continues after the last comes out of the edge a little. */
const OVERHANG = 16
/** Where the other stretches have more room than this anyhow, nothing is left out. */
const ROOM_PER_GAP = 44

export interface Break {
  /** In microseconds. */
  readonly from: number
  readonly to: number
  /** Its left edge in the picture. */
  readonly x: number
}

export interface Tick {
  readonly at: number
  readonly x: number
  readonly text: string
}

/** From moments to places: all stretches in one scale, except those that are left out. */
export interface TimeScale {
  readonly from: number
  readonly to: number
  readonly breaks: readonly Break[]
  x(at: number): number
  /** Not before, after, or in a stretch that is left out. */
  shows(at: number): boolean
  ticks(): Tick[]
}

/** `points` are the moments at which something happens, in microseconds. */
export function timeScale(points: readonly number[], left: number, right: number): TimeScale {
  const sorted = [...new Set(points)].toSorted((one, other) => one - other)
  const first = sorted[0] ?? 0
  const last = Math.max(sorted.at(-1) ?? 0, first + 1)
  const gaps = longGaps([...sorted, ...(sorted.length < 2 ? [last] : [])], right - left)
  const shown = last - first - gaps.reduce((sum, [from, to]) => sum + to - from, 0)
  const perMicrosecond = (right - left - gaps.length * BREAK_WIDTH) / shown
  const breaks: Break[] = []
  const x = (at: number): number => {
    let place = left
    let since = first
    for (const { from, to } of breaks) {
      if (at <= from) break
      place += (from - since) * perMicrosecond
      if (at < to) return place + ((at - from) / (to - from)) * BREAK_WIDTH
      place += BREAK_WIDTH
      since = to
    }
    return Math.min(right + OVERHANG, Math.max(left - OVERHANG, place + (at - since) * perMicrosecond))
  }
  for (const [from, to] of gaps) breaks.push({ from, to, x: x(from) })
  return {
    from: first,
    to: last,
    breaks,
    x,
    shows: (at) => at >= first && at <= last && !breaks.some(({ from, to }) => at > from && at < to),
    ticks: () => ticksOf(first, last, breaks, perMicrosecond, x),
  }
}

/** The long stretches without anything, if leaving them out makes room that is needed. The ends keep a little of their surroundings. */
function longGaps(sorted: readonly number[], width: number): [from: number, to: number][] {
  const gaps: [number, number][] = sorted.slice(1).map((to, index) => [sorted[index] ?? to, to])
  gaps.sort((one, other) => other[1] - other[0] - (one[1] - one[0]))
  let real = (sorted.at(-1) ?? 0) - (sorted[0] ?? 0)
  let edges = 0
  const out: [number, number][] = []
  for (const [index, [from, to]] of gaps.slice(0, MOST_BREAKS).entries()) {
    const whole = real + edges
    const rest = real - (to - from)
    const isCrowded = (rest / whole) * width < ROOM_PER_GAP * (gaps.length - index - 1)
    if (to - from < whole * BREAK_FROM || !isCrowded || rest <= 0) break
    const edge = Math.min(rest * 0.06, (to - from) * 0.1)
    out.push([from + edge, to - edge])
    real = rest
    edges += 2 * edge
  }
  return out.toSorted((one, other) => one[0] - other[0])
}

function ticksOf(
  first: number,
  last: number,
  breaks: readonly Break[],
  perMicrosecond: number,
  x: (at: number) => number,
): Tick[] {
  const step = niceStep(80 / perMicrosecond)
  const digits = Math.max(0, Math.ceil(-Math.log10(step / 1000) - 1e-9))
  const ticks: Tick[] = []
  for (let number = Math.ceil(first / step); number * step <= last; number++) {
    const at = number * step
    const inside = breaks.find(({ from, to }) => at > from && at < to)
    // A long stretch that is left out is jumped over: it may have a million steps.
    if (inside !== undefined) number = Math.ceil(inside.to / step) - 1
    else ticks.push({ at, x: x(at), text: `${milliseconds(at, digits)} ms` })
  }
  return ticks
}

function milliseconds(at: number, digits: number): string {
  return (at / 1000).toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })
}

/** 1, 2 or 5 times a power of ten, and not below a microsecond. */
function niceStep(atLeast: number): number {
  const power = 10 ** Math.floor(Math.log10(atLeast))
  const factor = [1, 2, 5].find((each) => each * power >= atLeast) ?? 10
  return Math.max(1, factor * power)
}

/** `740 ms`, `3.2 s` */
export function duration(microseconds: number): string {
  const ms = microseconds / 1000
  if (ms >= 1000) return `${Number((ms / 1000).toPrecision(3))} s`
  return `${Number(ms.toPrecision(2))} ms`
}
