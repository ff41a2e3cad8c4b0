import type { JSX } from 'preact'
import type { Picture } from '../../../../proofs/show/state.ts'

const HEIGHT = 110
const MOST = 400
const LEAST = -120
const BAR = 90

/** A bar for each wallet; below zero it hangs from the line and is red. The mark is the lowest that it has been. */
export function Wallets({ wallets }: Pick<Extract<Picture, { kind: 'wallets' }>, 'wallets'>): JSX.Element {
  const most = Math.max(MOST, ...wallets.map(({ balance }) => balance))
  const least = Math.min(LEAST, ...wallets.map(({ lowest }) => lowest))
  const y = (value: number): number => HEIGHT - ((value - least) / (most - least)) * HEIGHT
  return (
    <div class="wallets">
      <svg
        viewBox={`0 0 ${wallets.length * BAR} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={wallets.map(({ name, balance, lowest }) => `${name}: ${balance}, lowest ${lowest}`).join('; ')}
      >
        {wallets.map(({ name, balance, lowest }, place) => (
          <g key={name}>
            <rect
              class={balance < 0 ? 'below' : 'above'}
              x={place * BAR + 18}
              width={BAR - 36}
              y={Math.min(y(balance), y(0))}
              height={Math.max(1, Math.abs(y(balance) - y(0)))}
            />
            {lowest < 0 && (
              <line class="lowest" x1={place * BAR + 10} x2={(place + 1) * BAR - 10} y1={y(lowest)} y2={y(lowest)} />
            )}
          </g>
        ))}
        <line class="zero" x1={0} x2={wallets.length * BAR} y1={y(0)} y2={y(0)} />
      </svg>
      <ul>
        {wallets.map(({ name, balance, lowest }) => (
          <li key={name}>
            <b class={balance < 0 ? 'wrong' : ''}>{balance}</b> {name}
            <small class={lowest < 0 ? 'wrong' : ''}>lowest {lowest < 0 ? `−${-lowest}` : lowest}</small>
          </li>
        ))}
      </ul>
    </div>
  )
}
