import type { JSX } from 'preact'
import type { Picture } from '../../../../proofs/show/state.ts'

const WIDTH = 560
const HEIGHT = 96
const SAMPLES = 40
/** What the height shows at least, up and down, of what must be. */
const LEAST_SPAN = 0.08

/** The sum of all balances over time, beside what it must be. */
export function Total({ picture }: { picture: Extract<Picture, { kind: 'total' }> }): JSX.Element {
  const { must, totals, deadlocks } = picture
  const now = totals.at(-1) ?? must
  const drift = now - must
  const span = Math.max(must * LEAST_SPAN, ...totals.map((each) => Math.abs(each - must))) * 1.1
  const y = (value: number): number => HEIGHT / 2 - ((value - must) / span) * (HEIGHT / 2 - 4)
  const line = totals.map(
    (value, place) => `${((place + SAMPLES - totals.length) / (SAMPLES - 1)) * WIDTH},${y(value)}`,
  )
  const state = drift === 0 ? 'right' : 'wrong'
  return (
    <div class="total">
      <p>
        <b class={state}>{now.toLocaleString('en')}</b> in all accounts, expected {must.toLocaleString('en')}{' '}
        <span class={state}>
          {drift === 0 ? '' : `(${drift > 0 ? '+' : '−'}${Math.abs(drift).toLocaleString('en')})`}
        </span>
        <span class={`deadlocks ${deadlocks > 0 ? 'wrong' : ''}`}>{deadlocks.toLocaleString('en')} deadlocks</span>
      </p>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`The total over time: now ${now}, expected ${must}`}
      >
        <line class="must" x1={0} x2={WIDTH} y1={y(must)} y2={y(must)} />
        <polyline class={state} points={line.join(' ')} />
      </svg>
    </div>
  )
}
