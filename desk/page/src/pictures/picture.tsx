import type { JSX } from 'preact'
import type { Picture } from '../../../../proofs/show/state.ts'
import { Holders } from './holders.tsx'
import { Lanes } from './lanes.tsx'
import { Signals } from './signals.tsx'
import { Total } from './total.tsx'
import { Wallets } from './wallets.tsx'

export function PictureOf({ picture }: { picture: Picture }): JSX.Element {
  switch (picture.kind) {
    case 'lanes':
      return <Lanes lanes={picture.lanes} />
    case 'holders':
      return <Holders nowMs={picture.nowMs} tracks={picture.tracks} />
    case 'signals':
      return <Signals signals={picture.signals} />
    case 'total':
      return <Total picture={picture} />
    case 'wallets':
      return <Wallets wallets={picture.wallets} />
  }
}
