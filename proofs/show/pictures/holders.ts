import type { Holding } from '../state.ts'
import type { PictureSource } from './picture.ts'

const WINDOW_MS = 2500
const MOST = 60
const NAMES = ['Instance 1', 'Instance 2']

interface Claim {
  readonly key: string
  readonly op: string
  readonly by: string
  readonly fromMs: number
  toMs: number
  clash: boolean
}

/** Who was sure to hold an instance, from the first to the last moment at which it was. Two at once are red. */
export function holders(): PictureSource {
  const tracks = NAMES.map((): Claim[] => [])
  return {
    see({ what, key, op, by, at }) {
      if (what !== 'active') return
      // `instance 7.12.0` is the first of two that are worked on at that time.
      const track = tracks[Number(key.split('.').at(-1))]
      if (track === undefined) return
      const atMs = at / 1000
      let claim = track.find((each) => each.op === op)
      if (claim === undefined) track.push((claim = { key, op, by, fromMs: atMs, toMs: atMs, clash: false }))
      claim.toMs = Math.max(claim.toMs, atMs)
      for (const other of track) {
        if (other === claim || other.key !== key) continue
        if (other.fromMs < claim.toMs && claim.fromMs < other.toMs) other.clash = claim.clash = true
      }
      if (track.length > MOST) track.shift()
    },
    picture(nowMs) {
      const shown = (claims: readonly Claim[]): Holding[] =>
        claims
          .filter(({ toMs }) => toMs > nowMs - WINDOW_MS)
          .map(({ by, fromMs, toMs, clash }) => ({ by, fromMs: Math.round(fromMs), toMs: Math.round(toMs), clash }))
      return {
        kind: 'holders',
        nowMs,
        tracks: NAMES.map((name, index) => ({ name, holdings: shown(tracks[index] ?? []) })),
      }
    },
  }
}
