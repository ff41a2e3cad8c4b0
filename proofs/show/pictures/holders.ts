import { INSTANCES } from '../names.ts'
import { instanceName } from '../plainText.ts'
import type { Holding } from '../state.ts'
import type { PictureSource } from './picture.ts'

const WINDOW_MS = 2500
const MOST = 60
/** Two are shown: those with a clash, otherwise the first two. */
const SHOWN = 2

interface Claim {
  readonly key: string
  readonly op: string
  readonly by: string
  readonly fromMs: number
  toMs: number
  clash: boolean
}

interface Track {
  readonly name: string
  readonly claims: Claim[]
  clashAtMs: number
}

/** Who was sure to hold an instance, from the first to the last moment at which it was. Two at once are red. */
export function holders(): PictureSource {
  // Those that are there for long come first: their clashes are the easiest to see.
  const tracks = Array.from({ length: 2 * INSTANCES }, (_, index): Track => {
    const kind = index < INSTANCES ? 'long' : 'short'
    return { name: instanceName(`${kind}.${index % INSTANCES}`), claims: [], clashAtMs: -Infinity }
  })
  return {
    see({ what, key, op, by, at }) {
      if (what !== 'active') return
      // `short instance 7.12.0` is the first of the short ones that are worked on at that time.
      const name = instanceName(key)
      const track = tracks.find((each) => each.name === name)
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
      const isClashing = ({ clashAtMs }: Track): boolean => clashAtMs > nowMs - WINDOW_MS
      const chosen = [...tracks.filter(isClashing), ...tracks.filter((track) => !isClashing(track))]
        .slice(0, SHOWN)
        .toSorted((one, other) => tracks.indexOf(one) - tracks.indexOf(other))
      return { kind: 'holders', nowMs, tracks: chosen.map(({ name, claims }) => ({ name, holdings: shown(claims) })) }
    },
  }
}
