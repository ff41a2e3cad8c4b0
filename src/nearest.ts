/** More slips of the finger than these, and the guess would be a guess: of a short word nothing would be left to recognize. */
const MAX_SLIPS = 2
const LETTERS_PER_SLIP = 3

/** The candidate that was probably meant, if any: a few letters off, or begun and not finished. */
export function nearest(given: string, candidates: readonly string[]): string | undefined {
  const [best] = candidates
    .map((candidate) => ({ candidate, slips: slipsBetween(given, candidate) }))
    .toSorted((a, b) => a.slips - b.slips)
  const allowed = Math.min(MAX_SLIPS, Math.floor(given.length / LETTERS_PER_SLIP))
  if (best !== undefined && best.slips <= allowed) return best.candidate
  return given.length < 2 ? undefined : candidates.find((candidate) => candidate.startsWith(given))
}

/** Letters to insert, remove, replace or swap with their neighbor. */
function slipsBetween(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let cost = Math.min(at(last, j) + 1, at(row, j - 1) + 1, at(last, j - 1) + (same ? 0 : 1))
      if (a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) cost = Math.min(cost, at(beforeLast, j - 2) + 1)
      row.push(cost)
    }
    beforeLast = last
    last = row
  }
  return at(last, b.length)
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Infinity
}
