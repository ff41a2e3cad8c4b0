/** Round and scenario are named once for the whole picture: `r3.w1.wallet.0.17` is `w1.0.17` there. */
export function shortOp(op: string, scenario: string): string {
  const parts = op.split('.')
  const left = parts.filter((part, index) => part !== scenario && !(index === 0 && /^r\d+$/.test(part)))
  return left.length === 0 ? op : left.join('.')
}

/** A sentence with short names, and without saying twice whose they are. */
export function withShortOps(text: string, ops: readonly string[], scenario: string): string {
  let out = text
  // The longer first: one may be the beginning of another.
  for (const op of ops.toSorted((one, other) => other.length - one.length)) {
    const short = shortOp(op, scenario)
    const owner = short.split('.')[0] ?? ''
    out = out.replaceAll(`${owner} (${op})`, short).replaceAll(op, short)
  }
  // A headline begins as sentences do; a worker's name stays as it is.
  return /^[a-z]+[\s:,]/.test(out) ? out.charAt(0).toUpperCase() + out.slice(1) : out
}
