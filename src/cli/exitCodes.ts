/** How a program ends, for help and for docs/reference/cli.md, which a test compares. */
export const EXIT_CODES: readonly { readonly code: string; readonly meaning: string }[] = [
  { code: '0', meaning: 'done' },
  {
    code: '1',
    meaning: 'it failed, or doctor, status, outbox verify or prove found a broken guarantee',
  },
  {
    code: '2',
    meaning:
      'wrong usage: the command line, a key or a name in it, or a line that outbox verify reads; nothing was sent to a database',
  },
  { code: '3', meaning: 'prove was inconclusive: no guarantee was broken, but it has not shown enough' },
  { code: '128 + n', meaning: 'ended by signal n' },
]
