import type { JSX } from 'preact'
import type { Picture } from '../../../../proofs/show/state.ts'

/** The newest signals: how many positions each has opened. */
export function Signals({ signals }: Pick<Extract<Picture, { kind: 'signals' }>, 'signals'>): JSX.Element {
  return (
    <div class="signals">
      {signals.map(({ name, orders }) => (
        <span
          key={name}
          class={`signal ${orders > 1 ? 'twice' : 'once'}`}
          title={`Signal ${name}: ${orders} positions`}
        >
          <small>{name}</small>
          <b>{orders > 1 ? `×${orders}` : '1'}</b>
        </span>
      ))}
    </div>
  )
}
