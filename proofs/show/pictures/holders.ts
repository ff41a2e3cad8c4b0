import type { Holding } from '../state.ts'
import type { PictureSource } from './picture.ts'

const WINDOW_MS = 2500
const MOST = 60
/** Two are shown: those with the newest clash, otherwise the first two. */
const SHOWN = 2
const INSTANCES = 6

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
  const tracks = Array.from({ length: INSTANCES }, (_, index) => ({
    name: `Instance ${index + 1}`,
    claims: [] as Claim[],
    clashAtMs: 0,
  }))
  return {
    see({ what, key, op, by, at }) {
      if (what !== 'active') return
      // `short instance 7.12.0` is the first of those that are worked on at that time.
      const track = tracks[Number(key.split('.').at(-1))]
      if (track === undefined) return
      const atMs = at / 1000
      const { claims } = track
      let claim = claims.find((each) => each.op === op)
      if (claim === undefined) claims.push((claim = { key, op, by, fromMs: atMs, toMs: atMs, clash: false }))
      claim.toMs = Math.max(claim.toMs, atMs)
      for (const other of claims) {
        if (other === claim || other.key !== key) continue
        if (other.fromMs >= claim.toMs || claim.fromMs >= other.toMs) continue
        other.clash = claim.clash = true
        track.clashAtMs = atMs
      }
      if (claims.length > MOST) claims.shift()
    },
    picture(nowMs) {
      const shown = (claims: readonly Claim[]): Holding[] =>
        claims
          .filter(({ toMs }) => toMs > nowMs - WINDOW_MS)
          .map(({ key, by, fromMs, toMs, clash }) => ({
            by,
            fromMs: Math.round(fromMs),
            toMs: Math.round(toMs),
            // The second number counts the instances of this place.
            shade: Number(key.split('.').at(-2)) % 2 === 0 ? 0 : 1,
            clash,
          }))
      const chosen = tracks
        .toSorted((one, other) => other.clashAtMs - one.clashAtMs)
        .slice(0, SHOWN)
        .toSorted((one, other) => one.name.localeCompare(other.name))
      return { kind: 'holders', nowMs, tracks: chosen.map(({ name, claims }) => ({ name, holdings: shown(claims) })) }
    },
  }
}
