import type { JSX } from 'preact'
import type { Picture } from '../../../../proofs/show/state.ts'

const ABOVE = 72
const BELOW = 38
const BAR = 90
/** What the two parts show at least. Each has a scale of its own: balances grow, and what is below zero must stay visible. */
const MOST = 400
const LEAST = -100

/** A bar for each wallet. What hangs below the line is red: the lowest that the wallet has been, and in full color where it is now. */
export function Wallets({ wallets }: Pick<Extract<Picture, { kind: 'wallets' }>, 'wallets'>): JSX.Element {
  const most = Math.max(MOST, ...wallets.map(({ balance }) => balance))
  const least = Math.min(LEAST, ...wallets.map(({ lowest }) => lowest))
  const heightOf = (value: number): number => (value >= 0 ? (value / most) * ABOVE : (value / least) * BELOW)
  return (
    <div class="wallets">
      <svg
        viewBox={`0 0 ${wallets.length * BAR} ${ABOVE + BELOW}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={wallets.map(({ name, balance, lowest }) => `${name}: ${balance}, lowest ${lowest}`).join('; ')}
      >
        {wallets.map(({ name, balance, lowest }, place) => (
          <g key={name}>
            {balance >= 0 && (
              <rect
                class="above"
                x={place * BAR + 18}
                width={BAR - 36}
                y={ABOVE - heightOf(balance)}
                height={Math.max(1, heightOf(balance))}
              />
            )}
            {lowest < 0 && (
              <rect class="lowest" x={place * BAR + 18} width={BAR - 36} y={ABOVE} height={heightOf(lowest)} />
            )}
            {balance < 0 && (
              <rect class="below" x={place * BAR + 18} width={BAR - 36} y={ABOVE} height={heightOf(balance)} />
            )}
          </g>
        ))}
        <line class="zero" x1={0} x2={wallets.length * BAR} y1={ABOVE} y2={ABOVE} />
      </svg>
      <ul>
        {wallets.map(({ name, balance, lowest }) => (
          <li key={name}>
            <b class={balance < 0 ? 'wrong' : ''}>{signed(balance)}</b> {name}
            <small class={lowest < 0 ? 'wrong' : ''}>lowest {signed(lowest)}</small>
          </li>
        ))}
      </ul>
    </div>
  )
}

function signed(value: number): string {
  return value < 0 ? `−${(-value).toLocaleString('en')}` : value.toLocaleString('en')
}
