import type { JSX } from 'preact'
import type { Arrival, Picture } from '../../../../proofs/show/state.ts'

const SAYS: Readonly<Record<Arrival['mark'], string>> = {
  next: 'in order',
  overtook: 'overtook another',
  late: 'was overtaken',
  again: 'is a duplicate',
}

/** A lane for each portfolio: its trades in the order in which they arrived. */
export function Lanes({ lanes }: Pick<Extract<Picture, { kind: 'lanes' }>, 'lanes'>): JSX.Element {
  return (
    <div class="lanes">
      {lanes.map(({ name, arrivals }) => (
        <div class="lane" key={name}>
          <span class="lane-name">{name}</span>
          <span class="track">
            {arrivals.map(({ number, mark }, place) => (
              <span key={place} class={`trade ${mark}`} title={`#${number} ${SAYS[mark]}`}>
                {number}
              </span>
            ))}
          </span>
        </div>
      ))}
    </div>
  )
}
