import { expect, test } from 'vitest'
import { withExistingAnchors } from './apiAnchors.ts'

test('links to the heading where TypeDoc numbered an anchor that occurs once, and leaves all other links', () => {
  const pages = withExistingAnchors(
    new Map([
      ['a.md', '### Inbox\n\n[one](#inbox-1) [two](b/c.md#twice-1) [three](#missing-1) [four](https://x.example/#a-1)'],
      ['b/c.md', '### Twice\n\n### Twice\n\n[one](../a.md#inbox-1)'],
    ]),
  )
  expect(pages.get('a.md')).toBe(
    '### Inbox\n\n[one](#inbox) [two](b/c.md#twice-1) [three](#missing-1) [four](https://x.example/#a-1)',
  )
  expect(pages.get('b/c.md')).toBe('### Twice\n\n### Twice\n\n[one](../a.md#inbox)')
})
