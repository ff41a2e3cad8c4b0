/** How a program ends, for help and for docs/reference/cli.md, which a test compares. */
export const EXIT_CODES: readonly { readonly code: string; readonly meaning: string }[] = [
  { code: '0', meaning: 'done' },
  {
    code: '1',
    meaning: 'it failed, or doctor, status, outbox verify or prove found what breaks a promise',
  },
  {
    code: '2',
    meaning:
      'the command line itself is wrong, or a key or a name on it, or a line that outbox verify reads; nothing was sent to a database',
  },
  { code: '3', meaning: 'prove was inconclusive: no promise was broken, and it has not shown enough' },
  { code: '128 + n', meaning: 'ended by signal n' },
]
