import type { Checker, History, Violation } from '../history.ts'
import { listAt } from './operations.ts'
import { handful, listed, ms } from './wording.ts'

/** From the first to the last moment at which a holder was sure. */
interface Claim {
  readonly op: string
  readonly by: string
  readonly fence: string | undefined
  readonly from: number
  to: number
}

/** More claims at once than there may be, as long as it lasts. */
interface Crowd {
  readonly at: number
  readonly claims: Claim[]
  most: number
}

// At one moment ends come first and beginnings last: claims that only touch do not overlap.
const END = 0
const POINT = 1
const START = 2

/** Of a key that `holders` may hold at once, more were never sure at the same moment. */
export function atMost(holders: number): Checker {
  const name = holders === 1 ? 'mutual exclusion' : `at most ${holders} holders`
  return {
    name,
    promise:
      holders === 1
        ? 'No holder is sure of a key while another one is sure of it, too.'
        : `Never are more than ${holders} sure at the same moment that they hold a key.`,
    check(history) {
      const { scenario } = history
      const violations: Violation[] = []
      for (const [key, claims] of claimsOf(history)) {
        for (const crowd of crowdsOf(claims, holders)) {
          const may = holders === 1 ? 'one' : String(holders)
          const text = `${crowd.most} held ${key} at once, where ${may} may: ${listed(crowd.claims.map(spoken))}`
          const ops = handful(crowd.claims.map(({ op }) => op))
          violations.push({ invariant: name, scenario, key, text, ops, at: crowd.at })
        }
      }
      return violations
    },
  }
}

/** One claim for each grant: a holder that released it, or learned of its loss, and is sure again, begins another one. */
function claimsOf(history: History): Map<string, Claim[]> {
  const claims = new Map<string, Claim[]>()
  const current = new Map<string, Map<string, { fence: string | undefined; claim: Claim | undefined }>>()
  for (const { what, key, op, by, at, fence } of history.entries) {
    if (what !== 'granted' && what !== 'active' && what !== 'released') continue
    let ofKey = current.get(key)
    if (ofKey === undefined) current.set(key, (ofKey = new Map()))
    if (what === 'released') {
      ofKey.delete(op)
      continue
    }
    let grant = ofKey.get(op)
    if (grant === undefined) ofKey.set(op, (grant = { fence, claim: undefined }))
    if (what === 'granted') grant.fence = fence
    else if (grant.claim !== undefined) grant.claim.to = at
    else {
      grant.claim = { op, by, fence: fence ?? grant.fence, from: at, to: at }
      listAt(claims, key).push(grant.claim)
    }
  }
  return claims
}

function crowdsOf(claims: readonly Claim[], holders: number): Crowd[] {
  const moments = claims.flatMap((claim) =>
    claim.from === claim.to
      ? [{ at: claim.from, kind: POINT, claim }]
      : [
          { at: claim.from, kind: START, claim },
          { at: claim.to, kind: END, claim },
        ],
  )
  moments.sort((one, other) => one.at - other.at || one.kind - other.kind)
  const crowds: Crowd[] = []
  const inside = new Set<Claim>()
  let crowd: Crowd | undefined
  for (const { at, kind, claim } of moments) {
    if (kind === END) {
      inside.delete(claim)
      if (inside.size <= holders) crowd = undefined
      continue
    }
    const size = inside.size + 1
    if (size > holders) {
      if (crowd === undefined) crowds.push((crowd = { at, claims: [...inside], most: size }))
      crowd.claims.push(claim)
      crowd.most = Math.max(crowd.most, size)
    }
    if (kind === START) inside.add(claim)
    // Who was sure only once was so for no time: it is over at once.
    else if (inside.size <= holders) crowd = undefined
  }
  return crowds
}

function spoken({ op, by, fence, from, to }: Claim): string {
  const who = fence === undefined ? `${by} (${op})` : `${by} with fence ${fence}`
  return from === to ? `${who} at ${ms(from)}` : `${who} from ${ms(from).replace(' ms', '')} to ${ms(to)}`
}
