import type { JSX } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { HistorySample } from 'pg-lockstep/console'
import uPlot from 'uplot'
import { type Figure, figures, KEPT_SECONDS } from './live/figures.ts'
import { colours } from './theme.ts'
import { clock } from './wording.ts'

export interface Line {
  readonly label: string
  readonly of: (values: HistorySample) => number | null
  readonly text: (value: number) => string
  /** What the axis shows at least, so that a quiet minute does not look like a storm. */
  readonly atLeast: number
}

const HEIGHT = 132

/** Two lines over the last hour, if known. A screen reader reads its text. */
export function Chart(properties: {
  readonly title: string
  readonly lines: readonly Line[]
  /** The lines are of one kind, and are compared by their height. */
  readonly oneScale?: boolean
}): JSX.Element {
  const { title, lines, oneScale = false } = properties
  const place = useRef<HTMLDivElement>(null)
  const chart = useRef<uPlot | undefined>(undefined)
  const [pointed, setPointed] = useState<number | undefined>(undefined)
  const kept = figures.value
  const dressed = colours.value
  useLayoutEffect(() => {
    const element = place.current as HTMLDivElement
    const made = draw(element, lines, oneScale, setPointed)
    chart.current = made
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }))
    watch.observe(element)
    return () => {
      watch.disconnect()
      made.destroy()
    }
  }, [dressed, lines, oneScale])
  useEffect(() => chart.current?.setData(dataOf(kept, lines)), [kept, dressed, lines])
  const at = pointed === undefined ? kept.at(-1) : kept[pointed]
  return (
    <figure class="card chart">
      <figcaption>
        <h2>{title}</h2>
        <ul>
          {lines.map((line, index) => (
            <li key={line.label}>
              <span class={`swatch line${index}`} aria-hidden="true" />
              {line.label} <b>{valueOf(line, at)}</b>
            </li>
          ))}
          {pointed !== undefined && at !== undefined && <li class="hint">{clock(at.at * 1000)}</li>}
        </ul>
      </figcaption>
      <div class="plot" ref={place} role="img" aria-label={summary(title, lines, kept)} />
    </figure>
  )
}

function valueOf(line: Line, figure: Figure | undefined): string {
  const value = figure?.values === undefined ? null : line.of(figure.values)
  return value === null ? '–' : line.text(value)
}

function summary(title: string, lines: readonly Line[], kept: readonly Figure[]): string {
  const parts = lines.map((line) => {
    const known = kept
      .map(({ values }) => (values === undefined ? null : line.of(values)))
      .filter((value) => value !== null)
    if (known.length === 0) return `${line.label}: nothing known yet`
    const [low, high] = [Math.min(...known), Math.max(...known)]
    return `${line.label}: now ${valueOf(line, kept.at(-1))}, between ${line.text(low)} and ${line.text(high)}`
  })
  return `${title} over the last hour. ${parts.join('; ')}.`
}

function dataOf(kept: readonly Figure[], lines: readonly Line[]): uPlot.AlignedData {
  return [
    kept.map(({ at }) => at),
    ...lines.map((line) => kept.map(({ values }) => (values === undefined ? null : line.of(values)))),
  ]
}

/** Colors are the style's: a canvas needs them as values. */
function draw(
  element: HTMLElement,
  lines: readonly Line[],
  oneScale: boolean,
  point: (at: number | undefined) => void,
): uPlot {
  const figure = element.closest('figure') as HTMLElement
  const ink = lines.map(
    (_, index) => getComputedStyle(figure.querySelector(`.swatch.line${index}`) as Element).backgroundColor,
  )
  const { color, borderTopColor, fontFamily } = getComputedStyle(element)
  const axis: uPlot.Axis = {
    stroke: color,
    font: `11px ${fontFamily}`,
    grid: { stroke: borderTopColor, width: 1 },
    ticks: { show: false },
  }
  const scaleOf = (index: number): string => (oneScale ? 'y0' : `y${index}`)
  return new uPlot(
    {
      width: element.clientWidth,
      height: HEIGHT,
      padding: [8, oneScale ? 8 : 0, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { range: (_, oldest, newest) => spanOf(oldest, newest) },
        ...Object.fromEntries(
          lines.map((line, index) => [
            `y${index}`,
            { range: (_: uPlot, __: number, top: number) => [0, Math.max(line.atLeast, (top || 0) * 1.1)] },
          ]),
        ),
      },
      axes: [
        { ...axis, size: 24, space: 60, values: (_, times) => times.map((each) => clock(each * 1000).slice(-8)) },
        ...lines.slice(0, oneScale ? 1 : undefined).map((line, index): uPlot.Axis => ({
          ...axis,
          scale: scaleOf(index),
          side: index === 0 ? 3 : 1,
          size: 58,
          space: 26,
          stroke: oneScale ? color : (ink[index] ?? color),
          grid: { ...axis.grid, show: index === 0 },
          values: (_, values) => values.map((each) => line.text(each)),
        })),
      ],
      series: [
        {},
        ...lines.map((line, index) => ({
          label: line.label,
          scale: scaleOf(index),
          stroke: ink[index] ?? color,
          width: 1.5,
          points: { show: false },
        })),
      ],
      hooks: { setCursor: [(made) => point(made.cursor.idx ?? undefined)] },
    },
    [[], ...lines.map(() => [])] as unknown as uPlot.AlignedData,
    element,
  )
}

const LEAST_SECONDS = 60

/** What there is, from a minute to an hour: a page that was just opened is not almost empty. */
function spanOf(oldest: number | null, newest: number | null): [number, number] {
  const to = newest ?? Date.now() / 1000
  const span = Math.min(KEPT_SECONDS, Math.max(LEAST_SECONDS, to - (oldest ?? to)))
  return [to - span, to]
}
