import { expect, test } from 'vitest'
import { toCsv } from './exportRows.ts'

test('writes rows as comma-separated values that no program takes for a formula', () => {
  const columns = [
    { id: 'key', title: 'Key', by: ({ key }: { key: string }) => key, cell: () => '' },
    {
      id: 'n',
      title: 'Number',
      by: ({ n }: { n: number }) => -n,
      text: ({ n }: { n: number }) => String(n),
      cell: () => '',
    },
    { id: 'actions', title: 'Actions', cell: () => '' },
  ]
  const rows = [
    { key: 'Wallet:"7",\n8', n: -1 },
    { key: '=HYPERLINK("x")', n: 2 },
    { key: '-1+2', n: 3 },
  ]
  expect(toCsv(columns, rows)).toBe(
    '"Key","Number"\r\n"Wallet:""7"",\n8","-1"\r\n"\'=HYPERLINK(""x"")","2"\r\n"\'-1+2","3"\r\n',
  )
})
