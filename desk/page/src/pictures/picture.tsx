import type { JSX } from 'preact'
import type { Picture } from '../../../../proofs/show/state.ts'
import { Holders } from './holders.tsx'
import { Lanes } from './lanes.tsx'
import { Signals } from './signals.tsx'
import { Total } from './total.tsx'
import { Wallets } from './wallets.tsx'

export function PictureOf({ picture }: { picture: Picture }): JSX.Element {
  if (picture.kind === 'lanes') return <Lanes lanes={picture.lanes} />
  if (picture.kind === 'holders') return <Holders nowMs={picture.nowMs} tracks={picture.tracks} />
  if (picture.kind === 'signals') return <Signals signals={picture.signals} />
  if (picture.kind === 'total') return <Total picture={picture} />
  return <Wallets wallets={picture.wallets} />
}
