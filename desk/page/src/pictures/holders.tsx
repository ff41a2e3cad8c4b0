import type { JSX } from 'preact'
import type { Picture } from '../../../../proofs/show/state.ts'

const WINDOW_MS = 1600
const WORKERS = ['w1', 'w2', 'w3']
const ROW = 20
const LEFT = 34
const WIDTH = 560
const GAP = 16

/** Two instances, a row for each worker: a bar is a time in which that worker was sure to hold the instance. */
export function Holders({ nowMs, tracks }: Omit<Extract<Picture, { kind: 'holders' }>, 'kind'>): JSX.Element {
  const height = tracks.length * (WORKERS.length * ROW + GAP)
  const x = (ms: number): number => LEFT + ((ms - nowMs + WINDOW_MS) / WINDOW_MS) * (WIDTH - LEFT)
  const clashes = tracks.reduce((sum, { holdings }) => sum + holdings.filter(({ clash }) => clash).length, 0)
  return (
    <svg
      class="holders"
      viewBox={`0 0 ${WIDTH} ${height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`Who holds two instances: ${clashes === 0 ? 'one worker at a time' : `${clashes} holders at the same time as another`}`}
    >
      {tracks.map(({ name, holdings }, track) => {
        const top = track * (WORKERS.length * ROW + GAP)
        return (
          <g key={name}>
            <text class="track-name" x={0} y={top + 11}>
              {name}
            </text>
            {WORKERS.map((worker, row) => (
              <g key={worker}>
                <text x={6} y={top + GAP + row * ROW + 13}>
                  {worker}
                </text>
                <line x1={LEFT} x2={WIDTH} y1={top + GAP + row * ROW + 9} y2={top + GAP + row * ROW + 9} />
              </g>
            ))}
            {holdings
              .filter(({ toMs }) => x(toMs) > LEFT)
              .map(({ by, fromMs, toMs, shade, clash }, place) => {
                const row = Math.max(0, WORKERS.indexOf(by.slice(0, 2)))
                const from = Math.max(LEFT, x(fromMs))
                return (
                  <rect
                    key={place}
                    class={clash ? 'clash' : `alone shade${shade}`}
                    x={from}
                    y={top + GAP + row * ROW + 2}
                    width={Math.max(3, x(toMs) - from)}
                    height={14}
                    rx={2}
                  />
                )
              })}
          </g>
        )
      })}
    </svg>
  )
}
